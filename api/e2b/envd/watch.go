package envd

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/filesystempb"
)

// WatchDir implements filesystem.Filesystem.
func (s filesystem) WatchDir(ctx context.Context, r *pb.WatchDirRequest, out *connect.ServerStream[pb.WatchDirResponse]) error {
	c := callOf(ctx)
	c.body.releaseExcept(proto.Size(r))
	dir, err := c.path(ctx, r.GetPath())
	if err != nil {
		return s.failure(ctx, err)
	}
	within, cancel := withTimeout(ctx, c.timeout)
	defer cancel()
	begun := false // guarded by p
	p := newKeepaliveSender(within, c.every, func() error {
		if !begun {
			return nil // the first event reports that the watch has begun
		}
		return out.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}})
	})
	err = s.filesOf(c).Watch(p.ctx, dir, r.GetRecursive(), func(change brig.FileChange) error {
		return p.do(func() error {
			if !begun {
				begun = true
				if err := out.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}); err != nil {
					return err
				}
			}
			for _, ev := range events(change, r.GetIncludeEntry()) {
				if err := out.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: ev}}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if p.stop() != nil {
		return nil // the client has disconnected
	}
	if !begun && within.Err() == nil {
		return s.pathFailure(ctx, dir.Name, err)
	}
	return s.interrupted(ctx, within, err)
}
