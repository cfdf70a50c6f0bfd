package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// scanFiles passes the entries of a version to f, with the paths shown to
// callers: first the entries of /workspace, then those captured outside. It
// returns the version's record, or nil for the empty version.
func (s *Store) scanFiles(ctx context.Context, tenant, name string, version int, f func(filePath string, e *entry)) (*record, error) {
	id, version, err := s.Find(ctx, tenant, name, version)
	if err != nil || version == 0 {
		return nil, err
	}
	r, err := s.readVersion(ctx, tenant, id, version)
	if err != nil {
		return nil, noVersionError(name, version, err)
	}
	err = s.verify(ctx, tenant, name, id, r, func(e *entry) { f(EscapePath(mountPath+"/"+e.Path), e) })
	if err != nil || r.Outside == "" {
		return r, err
	}
	_, err = s.scan(ctx, tenant, r.Outside, func(e *entry) error {
		f(EscapePath("/"+e.Path), e)
		return nil
	})
	if err != nil {
		return nil, damagedError(name, version, err)
	}
	return r, nil
}

// Files lists a version's files and links at and below a place, by their paths
// in a sandbox. An empty place means everywhere, and version 0 is the newest.
func (s *Store) Files(ctx context.Context, tenant, name string, version int, place string) ([]brig.WorkspaceFile, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	filePath := strings.TrimSuffix(place, "/")
	out := []brig.WorkspaceFile{}
	_, err = s.scanFiles(ctx, tenant, name, version, func(p string, e *entry) {
		if e.Type != brig.Directory && (p == filePath || strings.HasPrefix(p, filePath+"/")) {
			out = append(out, toFile(p, e))
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b brig.WorkspaceFile) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Read opens a file of a version by a path from Files, and returns its size.
// The reader verifies the content, and returns an error at the end if the
// content was modified. A sweep does not remove the content of an open reader.
func (s *Store) Read(ctx context.Context, tenant, name string, version int, filePath string) (int64, io.ReadCloser, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	var e *entry
	r, err := s.scanFiles(ctx, tenant, name, version, func(p string, found *entry) {
		if e == nil && p == filePath {
			e = found
		}
	})
	if err != nil {
		return 0, nil, err
	}
	if r != nil {
		version = r.Number
	}
	switch {
	case e == nil:
		return 0, nil, brig.Errorf(brig.NotFound, "version %d of workspace %q has no %q", version, name, EscapePath(filePath[:min(len(filePath), 100)])).
			WithHint("list its files to see what exists")
	case e.Type != brig.RegularFile:
		return 0, nil, brig.InvalidField("path", "%q is a %s", EscapePath(filePath), e.Type).WithHint("give the path of a file")
	}
	return s.openContent(ctx, tenant, name, version, e)
}

// openContent opens the content of a file.
func (s *Store) openContent(ctx context.Context, tenant, name string, version int, e *entry) (int64, io.ReadCloser, error) {
	if e.Size == 0 {
		return 0, io.NopCloser(strings.NewReader("")), nil
	}
	r, err := s.o.Get(ctx, blobKey(tenant, e.digest))
	if errors.Is(err, ErrMissing) {
		return 0, nil, damagedError(name, version, err)
	}
	if err != nil {
		return 0, nil, unavailableError(err)
	}
	c := &verifyingReader{r: r, remaining: e.Size, want: e.digest, hash: sha256.New()}
	return e.Size, struct {
		io.Reader
		io.Closer
	}{c, r}, nil
}
