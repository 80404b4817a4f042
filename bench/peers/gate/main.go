// Gate is what our worker is to Envoy, in grpc-go and without deciding anything: each request is parsed, and an answer of
// the shape of ours is built and serialised afresh. It says SERVING to health checks.
//
// usage: gate SOCKET [ext_authz|ratelimit|ext_proc ...]
//
// Without names all three services are on the socket.
package main

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ep "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	rl "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"seawall/bench/peers/tally"
)

const (
	limit  = 1_000_000_000
	tenant = "team-haven"
	class  = "standard"
	pool   = "big"
	// The last descriptor of a call.
	versionKey = "seawall.policy"
)

var rids atomic.Uint64

type gate struct {
	rl.UnimplementedRateLimitServiceServer
	ep.UnimplementedExternalProcessorServer
	auth.UnimplementedAuthorizationServer
	tally *tally.Tally
}

// Check lets everything pass, with the metadata that the later filters ask for.
func (g *gate) Check(_ context.Context, r *auth.CheckRequest) (*auth.CheckResponse, error) {
	text := structpb.NewStringValue
	return &auth.CheckResponse{
		Status:       &status.Status{},
		HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{HeadersToRemove: []string{"authorization"}}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"tenant": text(tenant), "class": text(class), "key": text(tenant + "-0"), "policy": text("1"),
			"rid": text(strconv.FormatUint(1<<63|rids.Add(1), 16)),
		}},
	}, nil
}

// ShouldRateLimit counts one hit for each descriptor.
func (g *gate) ShouldRateLimit(_ context.Context, r *rl.RateLimitRequest) (*rl.RateLimitResponse, error) {
	out := &rl.RateLimitResponse{OverallCode: rl.RateLimitResponse_OK}
	for _, d := range r.Descriptors {
		if d.Entries[0].Key == versionKey {
			// It tells the version of the policy, and has no limit.
			out.Statuses = append(out.Statuses, &rl.RateLimitResponse_DescriptorStatus{Code: rl.RateLimitResponse_OK})
			continue
		}
		n := g.tally.Hit(r.Domain, d)
		out.Statuses = append(out.Statuses, &rl.RateLimitResponse_DescriptorStatus{
			Code:               rl.RateLimitResponse_OK,
			LimitRemaining:     limit - n,
			CurrentLimit:       &rl.RateLimitResponse_RateLimit{RequestsPerUnit: limit, Unit: rl.RateLimitResponse_RateLimit_MINUTE},
			DurationUntilReset: &durationpb.Duration{Seconds: 30},
		})
	}
	return out, nil
}

func set(name, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// Process asks for the body and for the answer as our service does, and sends each piece of the answer back.
func (g *gate) Process(stream ep.ExternalProcessor_ProcessServer) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		out := &ep.ProcessingResponse{}
		switch m := in.Request.(type) {
		case *ep.ProcessingRequest_RequestHeaders:
			out.Response = &ep.ProcessingResponse_RequestHeaders{RequestHeaders: &ep.HeadersResponse{}}
			out.ModeOverride = &filter.ProcessingMode{
				RequestHeaderMode: filter.ProcessingMode_SEND, RequestBodyMode: filter.ProcessingMode_BUFFERED,
				ResponseHeaderMode: filter.ProcessingMode_SEND, ResponseTrailerMode: filter.ProcessingMode_SEND,
			}
		case *ep.ProcessingRequest_RequestBody:
			out.Response = &ep.ProcessingResponse_RequestBody{RequestBody: &ep.BodyResponse{Response: &ep.CommonResponse{
				ClearRouteCache: true,
				HeaderMutation: &ep.HeaderMutation{
					SetHeaders: []*core.HeaderValueOption{
						set("x-seawall-class", class), set("x-seawall-pool", pool), set("x-seawall-tenant", tenant),
					},
					RemoveHeaders: []string{"accept-encoding"},
				},
			}}}
		case *ep.ProcessingRequest_ResponseHeaders:
			out.Response = &ep.ProcessingResponse_ResponseHeaders{ResponseHeaders: &ep.HeadersResponse{}}
			if !m.ResponseHeaders.EndOfStream {
				out.ModeOverride = &filter.ProcessingMode{
					ResponseHeaderMode: filter.ProcessingMode_SEND, ResponseBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED,
					ResponseTrailerMode: filter.ProcessingMode_SEND,
				}
			}
		case *ep.ProcessingRequest_ResponseBody:
			piece := &ep.StreamedBodyResponse{Body: m.ResponseBody.Body, EndOfStream: m.ResponseBody.EndOfStream}
			out.Response = &ep.ProcessingResponse_ResponseBody{ResponseBody: &ep.BodyResponse{Response: &ep.CommonResponse{
				BodyMutation: &ep.BodyMutation{Mutation: &ep.BodyMutation_StreamedResponse{StreamedResponse: piece}},
			}}}
		case *ep.ProcessingRequest_RequestTrailers:
			out.Response = &ep.ProcessingResponse_RequestTrailers{RequestTrailers: &ep.TrailersResponse{}}
		case *ep.ProcessingRequest_ResponseTrailers:
			out.Response = &ep.ProcessingResponse_ResponseTrailers{ResponseTrailers: &ep.TrailersResponse{}}
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	server, service, alive := grpc.NewServer(), &gate{tally: tally.New()}, health.NewServer()
	wanted := func(name string) bool { return len(os.Args) == 2 || slices.Contains(os.Args[2:], name) }
	if wanted("ext_authz") {
		auth.RegisterAuthorizationServer(server, service)
	}
	if wanted("ratelimit") {
		rl.RegisterRateLimitServiceServer(server, service)
	}
	if wanted("ext_proc") {
		ep.RegisterExternalProcessorServer(server, service)
	}
	alive.SetServingStatus("seawall", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, alive)
	panic(server.Serve(listener))
}
