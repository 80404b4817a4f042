// Load keeps calls in flight against one server over one connection. Once warm it prints "ready" and waits for a line;
// then it runs and prints one JSON object.
//
// usage: load -socket PATH -mode unary|stream -n OPERATIONS -c IN_FLIGHT -k MESSAGES_PER_STREAM -warm OPERATIONS
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ep "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	rl "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const users = 1000

var (
	socket = flag.String("socket", "", "Unix socket of the server")
	mode   = flag.String("mode", "unary", "unary or stream")
	n      = flag.Int("n", 1000, "calls, or streams")
	c      = flag.Int("c", 32, "in flight")
	k      = flag.Int("k", 0, "body messages of a stream, after its headers")
	warm   = flag.Int("warm", 0, "operations first, not counted")
)

func entry(key, value string) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

func unary(client rl.RateLimitServiceClient, i int) error {
	answer, err := client.ShouldRateLimit(context.Background(), &rl.RateLimitRequest{Domain: "llm", HitsAddend: 1, Descriptors: []*common.RateLimitDescriptor{
		entry("user", "user-"+strconv.Itoa(i%users)), entry("model", "llama-3-70b")}})
	if err == nil && len(answer.Statuses) != 2 {
		err = fmt.Errorf("not two statuses: %v", answer)
	}
	return err
}

var headers = func() *ep.ProcessingRequest {
	all := &core.HeaderMap{}
	for _, p := range [][2]string{{":method", "POST"}, {":path", "/v1/chat/completions"}, {":authority", "llm.example"}, {":scheme", "http"},
		{"content-type", "application/json"}, {"authorization", "Bearer sk-0123456789abcdef"}, {"user-agent", "OpenAI/Python 1.50"},
		{"x-request-id", "5b0f3f3e-6a38-4b2c-9a51-6a2f6d2f7a11"}, {"content-length", "4096"}} {
		all.Headers = append(all.Headers, &core.HeaderValue{Key: p[0], RawValue: []byte(p[1])})
	}
	return &ep.ProcessingRequest{Request: &ep.ProcessingRequest_RequestHeaders{RequestHeaders: &ep.HttpHeaders{Headers: all}}}
}()

var chunk = &ep.ProcessingRequest{Request: &ep.ProcessingRequest_ResponseBody{ResponseBody: &ep.HttpBody{Body: []byte(
	`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"llama-3-70b","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")}}}

// stream goes in lock step, as tokens do: one arrives, is answered, then comes the next.
func stream(client ep.ExternalProcessorClient) error {
	call, err := client.Process(context.Background())
	if err != nil {
		return err
	}
	for j := 0; j <= *k; j++ {
		message := chunk
		if j == 0 {
			message = headers
		}
		if err = call.Send(message); err != nil {
			return err
		}
		if _, err = call.Recv(); err != nil {
			return err
		}
	}
	if err = call.CloseSend(); err != nil {
		return err
	}
	if _, err = call.Recv(); err != io.EOF {
		return fmt.Errorf("no clean end: %v", err)
	}
	return nil
}

func main() {
	flag.Parse()
	connection, err := grpc.NewClient("unix:"+*socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	limits, processor := rl.NewRateLimitServiceClient(connection), ep.NewExternalProcessorClient(connection)
	run := func(total int) []time.Duration {
		var next, failed int64
		var group sync.WaitGroup
		took := make([][]time.Duration, *c)
		for w := range *c {
			group.Go(func() {
				for {
					i := int(atomic.AddInt64(&next, 1))
					if i > total {
						return
					}
					began, err := time.Now(), error(nil)
					if *mode == "unary" {
						err = unary(limits, i)
					} else {
						err = stream(processor)
					}
					if err != nil {
						if atomic.AddInt64(&failed, 1) == 1 {
							fmt.Fprintln(os.Stderr, err)
						}
						continue
					}
					took[w] = append(took[w], time.Since(began))
				}
			})
		}
		group.Wait()
		return slices.Sorted(slices.Values(slices.Concat(took...)))
	}
	run(*warm)
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		panic(err)
	}
	took := run(*n)
	p50 := int64(0)
	if len(took) > 0 {
		p50 = took[len(took)/2].Microseconds()
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"ops": len(took), "want": *n, "p50_us": p50})
}
