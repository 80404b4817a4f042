// Server answers what bench/noop.py answers, in grpc-go: the yardstick of every table.
//
// usage: server SOCKET
package main

import (
	"context"
	"io"
	"net"
	"os"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ep "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	rl "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"seawall/bench/peers/tally"
)

const limit = 1 << 30

type noop struct {
	rl.UnimplementedRateLimitServiceServer
	ep.UnimplementedExternalProcessorServer
	auth.UnimplementedAuthorizationServer
	tally *tally.Tally
}

// ShouldRateLimit counts one hit for each descriptor.
func (s *noop) ShouldRateLimit(_ context.Context, r *rl.RateLimitRequest) (*rl.RateLimitResponse, error) {
	out := &rl.RateLimitResponse{OverallCode: rl.RateLimitResponse_OK}
	for _, d := range r.Descriptors {
		n := s.tally.Hit(r.Domain, d)
		out.Statuses = append(out.Statuses, &rl.RateLimitResponse_DescriptorStatus{Code: rl.RateLimitResponse_OK, LimitRemaining: limit - n})
	}
	return out, nil
}

// Check lets everything pass.
func (s *noop) Check(context.Context, *auth.CheckRequest) (*auth.CheckResponse, error) {
	return &auth.CheckResponse{HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{}}}, nil
}

func echoed(b *ep.HttpBody) *ep.BodyResponse {
	return &ep.BodyResponse{Response: &ep.CommonResponse{BodyMutation: &ep.BodyMutation{Mutation: &ep.BodyMutation_StreamedResponse{
		StreamedResponse: &ep.StreamedBodyResponse{Body: b.Body, EndOfStream: b.EndOfStream}}}}}
}

// Process answers headers and trailers with nothing, and sends each piece of a body back.
func (s *noop) Process(st ep.ExternalProcessor_ProcessServer) error {
	for {
		in, err := st.Recv()
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
		case *ep.ProcessingRequest_ResponseHeaders:
			out.Response = &ep.ProcessingResponse_ResponseHeaders{ResponseHeaders: &ep.HeadersResponse{}}
		case *ep.ProcessingRequest_RequestBody:
			out.Response = &ep.ProcessingResponse_RequestBody{RequestBody: echoed(m.RequestBody)}
		case *ep.ProcessingRequest_ResponseBody:
			out.Response = &ep.ProcessingResponse_ResponseBody{ResponseBody: echoed(m.ResponseBody)}
		case *ep.ProcessingRequest_RequestTrailers:
			out.Response = &ep.ProcessingResponse_RequestTrailers{RequestTrailers: &ep.TrailersResponse{}}
		case *ep.ProcessingRequest_ResponseTrailers:
			out.Response = &ep.ProcessingResponse_ResponseTrailers{ResponseTrailers: &ep.TrailersResponse{}}
		}
		if err := st.Send(out); err != nil {
			return err
		}
	}
}

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	server, service := grpc.NewServer(), &noop{tally: tally.New()}
	rl.RegisterRateLimitServiceServer(server, service)
	ep.RegisterExternalProcessorServer(server, service)
	auth.RegisterAuthorizationServer(server, service)
	panic(server.Serve(listener))
}
