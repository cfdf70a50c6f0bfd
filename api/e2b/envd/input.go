package envd

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/processpb"
)

// errInvalidInput returns the error for input that a process cannot accept. E2B
// reports all of these errors as internal.
func errInvalidInput(message string) error {
	return connect.NewError(connect.CodeInternal, errors.New(message))
}

// SendInput implements process.Process.
func (s processes) SendInput(ctx context.Context, r *pb.SendInputRequest) (*pb.SendInputResponse, error) {
	p, err := s.find(ctx, r.GetProcess(), false)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	if err := s.input(ctx, p, r.GetInput()); err != nil {
		return nil, err
	}
	return &pb.SendInputResponse{}, nil
}

// StreamInput implements process.Process.
func (s processes) StreamInput(ctx context.Context, in *connect.ClientStream[pb.StreamInputRequest]) (*pb.StreamInputResponse, error) {
	var p *brig.ProcessInfo
	for in.Receive() {
		switch r := in.Msg(); r.GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			var err error
			if p, err = s.find(ctx, r.GetStart().GetProcess(), false); err != nil {
				return nil, s.failure(ctx, err)
			}
		case *pb.StreamInputRequest_Data:
			if p == nil {
				return nil, s.failure(ctx, brig.Errorf(brig.InvalidArgument, "data precedes the selection of a process"))
			}
			if err := s.input(ctx, p, r.GetData().GetInput()); err != nil {
				return nil, err
			}
			bodyOf(ctx).releaseRead()
		case *pb.StreamInputRequest_Keepalive:
		default:
			return nil, s.failure(ctx, brig.Errorf(brig.InvalidArgument, "empty event"))
		}
	}
	if err := in.Err(); err != nil {
		return nil, s.failure(ctx, err)
	}
	return &pb.StreamInputResponse{}, nil
}

// input writes the input of a request to a process.
func (s processes) input(ctx context.Context, p *brig.ProcessInfo, in *pb.ProcessInput) error {
	var data []byte
	switch in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if p.Spec.Terminal != nil {
			return errInvalidInput("the process has a terminal instead of a standard input")
		}
		if p.Spec.NoInput {
			return errInvalidInput("the process was started without a standard input")
		}
		data = in.GetStdin()
	case *pb.ProcessInput_Pty:
		if p.Spec.Terminal == nil {
			return errInvalidInput("the process has no terminal")
		}
		data = in.GetPty()
	default:
		return s.failure(ctx, brig.Errorf(brig.InvalidArgument, "the request has no input"))
	}
	if len(data) == 0 {
		return nil
	}
	err := s.processesOf(callOf(ctx)).WriteInput(ctx, p.PID, data)
	if brig.KindOf(err) == brig.FailedPrecondition && !s.causedByEnd(ctx, err) {
		return errInvalidInput(brig.AsError(err).Message)
	}
	return s.failure(ctx, err)
}
