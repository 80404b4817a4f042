// Upstream is an engine that costs next to nothing: a small JSON at once, or for `"stream":true` 100 events of 200 bytes,
// 5 ms apart.
//
// usage: upstream HOST:PORT
package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	chunks = 100
	pause  = 5 * time.Millisecond
)

var (
	whole = []byte(`{"id":"x","object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`)
	chunk = []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"llama-3-70b","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
)

func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("content-type", "application/json")
		w.Write(whole)
		return
	}
	w.Header().Set("content-type", "text/event-stream")
	for range chunks {
		w.Write(chunk)
		w.(http.Flusher).Flush()
		time.Sleep(pause)
	}
}

func main() {
	panic(http.ListenAndServe(os.Args[1], http.HandlerFunc(answer)))
}
