package envd

import (
	"context"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/filesystempb"
)

// filesystem implements filesystem.Filesystem.
type filesystem struct{ *Envd }

func (s filesystem) filesOf(c *call) brig.Files { return s.service.Files(c.box.ID) }

// withPath calls do with the path of a request. It returns NotFound errors in
// E2B's wording.
func (s filesystem) withPath(ctx context.Context, name string, do func(brig.Files, brig.Path) error) error {
	c := callOf(ctx)
	p, err := c.path(ctx, name)
	if err == nil {
		err = do(s.filesOf(c), p)
	}
	return s.pathFailure(ctx, p.Name, err)
}

// pathFailure is like failure, for an operation on a path.
func (s filesystem) pathFailure(ctx context.Context, name string, err error) error {
	if brig.KindOf(err) == brig.NotFound && !s.causedByEnd(ctx, err) {
		err = brig.Errorf(brig.NotFound, "file not found: %s", truncate(name))
	}
	return s.failure(ctx, err)
}

// Stat implements filesystem.Filesystem.
func (s filesystem) Stat(ctx context.Context, r *pb.StatRequest) (*pb.StatResponse, error) {
	out := &pb.StatResponse{}
	err := s.withPath(ctx, r.GetPath(), func(f brig.Files, p brig.Path) error {
		e, err := f.Stat(ctx, p)
		out.Entry = entry(e)
		return err
	})
	return out, err
}

// MakeDir implements filesystem.Filesystem.
func (s filesystem) MakeDir(ctx context.Context, r *pb.MakeDirRequest) (*pb.MakeDirResponse, error) {
	out := &pb.MakeDirResponse{}
	err := s.withPath(ctx, r.GetPath(), func(f brig.Files, p brig.Path) error {
		e, err := f.MakeDir(ctx, p)
		out.Entry = entry(e)
		return err
	})
	return out, err
}

// Move implements filesystem.Filesystem.
func (s filesystem) Move(ctx context.Context, r *pb.MoveRequest) (*pb.MoveResponse, error) {
	out := &pb.MoveResponse{}
	err := s.withPath(ctx, r.GetSource(), func(f brig.Files, from brig.Path) error {
		to, err := callOf(ctx).path(ctx, r.GetDestination())
		if err != nil {
			return err
		}
		e, err := f.Move(ctx, from, to)
		out.Entry = entry(e)
		return err
	})
	return out, err
}

// maxDepth limits the depth of a listing. No path has that many levels.
const maxDepth = 4096

// ListDir implements filesystem.Filesystem.
func (s filesystem) ListDir(ctx context.Context, r *pb.ListDirRequest) (*pb.ListDirResponse, error) {
	out := &pb.ListDirResponse{}
	err := s.withPath(ctx, r.GetPath(), func(f brig.Files, p brig.Path) error {
		all, err := f.List(ctx, p, int(min(max(r.GetDepth(), 1), maxDepth)))
		for _, e := range all {
			out.Entries = append(out.Entries, entry(e))
		}
		return err
	})
	return out, err
}

// Remove implements filesystem.Filesystem.
func (s filesystem) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	err := s.withPath(ctx, r.GetPath(), func(f brig.Files, p brig.Path) error { return f.Remove(ctx, p) })
	return &pb.RemoveResponse{}, err
}
