package rest_test

import (
	"context"
	"io"
	"strings"

	"github.com/brig-run/brig"
)

func stubVersion(n int) *brig.WorkspaceVersion {
	return &brig.WorkspaceVersion{Number: n, Digest: "sha256:aa", Base: n - 1, Files: 2, Size: 7, Created: epoch, Actor: "ann", Sandbox: "sb1"}
}

func (s *stub) CreateWorkspace(_ context.Context, name string) (*brig.Workspace, error) {
	if s.record(name); name == "taken" {
		return nil, brig.Errorf(brig.AlreadyExists, "workspace %q exists", name)
	}
	return &brig.Workspace{Name: name, ID: "ws1", Store: "local", Created: epoch}, nil
}

func (s *stub) Workspaces(context.Context) ([]*brig.Workspace, error) {
	return []*brig.Workspace{
		{Name: "data", ID: "ws1", Store: "local", Created: epoch, Head: stubVersion(2)},
		{Name: "empty", ID: "ws2", Store: "s3", Created: epoch},
	}, nil
}

func (s *stub) RemoveWorkspace(_ context.Context, name string) error {
	if s.record(name); name != "data" {
		return brig.Errorf(brig.NotFound, "no workspace %q", name)
	}
	return nil
}

func (s *stub) WorkspaceVersions(_ context.Context, name string) ([]*brig.WorkspaceVersion, error) {
	s.record(name)
	return []*brig.WorkspaceVersion{stubVersion(2), stubVersion(1)}, nil
}

func (s *stub) WorkspaceFiles(_ context.Context, name string, version int, path string) ([]brig.WorkspaceFile, error) {
	s.record([]any{name, version, path})
	return []brig.WorkspaceFile{
		{Path: "/etc/foo", Type: brig.Symlink, Mode: 0o777, Target: "bar"},
		{Path: "/workspace/a", Type: brig.RegularFile, Mode: 0o644, Size: 5},
	}, nil
}

func (s *stub) ReadWorkspaceFile(_ context.Context, name string, version int, path string) (int64, io.ReadCloser, error) {
	if s.record([]any{name, version, path}); path != "/workspace/a" {
		return 0, nil, brig.Errorf(brig.NotFound, "version %d of workspace %q has no %q", version, name, path)
	}
	return 5, io.NopCloser(strings.NewReader("hello")), nil
}

func (s *stub) DiffWorkspace(_ context.Context, name string, from, to int) ([]brig.WorkspaceChange, error) {
	s.record([]any{name, from, to})
	return []brig.WorkspaceChange{
		{Path: "a", Kind: brig.WorkspaceAdded, Type: brig.RegularFile, Size: 5},
		{Path: `b\xff`, Kind: brig.WorkspaceRemoved, Type: brig.Symlink},
	}, nil
}

func (s *stub) RestoreWorkspace(_ context.Context, name string, version int) (*brig.WorkspaceVersion, error) {
	s.record([]any{name, version})
	v := stubVersion(3)
	v.Sandbox, v.Restored = "", version
	return v, nil
}

func (s *stub) CommitWorkspace(_ context.Context, sandbox string) (*brig.WorkspaceCommit, error) {
	s.record(sandbox)
	return &brig.WorkspaceCommit{
		Name: "data", Version: stubVersion(3), Changed: 1, Passed: 1,
		Changes:  []brig.WorkspaceChange{{Path: "a", Kind: brig.WorkspaceChanged, Type: brig.RegularFile, Size: 5}},
		Skipped:  []brig.WorkspaceSkip{{Path: "top", Reason: "outside the prefixes that may be written"}},
		Captured: []brig.WorkspaceFile{{Path: "/etc/foo", Type: brig.RegularFile, Mode: 0o600, Size: 3}},
	}, nil
}
