package servicetest

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// write writes a file to a sandbox's workspace.
func (h Harness) write(t *testing.T, box *brig.Sandbox, path, content string) {
	t.Helper()
	_, err := h.Service.Files(box.Spec.Name).Write(h.Context(t), brig.Path{Name: "/workspace/" + path}, brig.FileWrite{}, strings.NewReader(content))
	if err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

// read returns the content of a file in a sandbox's workspace, or the kind of
// the error.
func (h Harness) read(t *testing.T, box *brig.Sandbox, path string) string {
	t.Helper()
	_, r, err := h.Service.Files(box.Spec.Name).Read(h.Context(t), brig.Path{Name: "/workspace/" + path}, 0, -1)
	if err != nil {
		return string(brig.KindOf(err))
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return string(b)
}

// workspaceCases are the cases about workspaces.
type workspaceCases struct{ Harness }

// ofVersion returns the content of a file in a version of a workspace.
func (h workspaceCases) ofVersion(t *testing.T, ws string, version int, path string) string {
	t.Helper()
	size, r, err := h.Service.ReadWorkspaceFile(h.Context(t), ws, version, path)
	if err != nil {
		t.Fatalf("read %s of version %d: %v", path, version, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != size {
		t.Fatalf("read %s of version %d: %d bytes of %d, %v", path, version, len(b), size, err)
	}
	return string(b)
}

// testCaptures checks that files outside /workspace are captured.
func (h workspaceCases) testCaptures(t *testing.T, ws string) {
	ctx := h.Context(t)
	box := h.sandbox(t, brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Capture: []string{"/home/user/kept/", "/etc/none"}}})
	if u := box.Spec.Workspace; !slices.Equal(u.Capture, []string{"/home/user/kept", "/etc/none"}) {
		t.Errorf("the sandbox has %+v", u)
	}
	for _, name := range []string{"/home/user/kept/a", "/home/user/other"} {
		if _, err := h.Service.Files(box.Spec.Name).Write(ctx, brig.Path{Name: name}, brig.FileWrite{}, strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := h.Service.CommitWorkspace(ctx, box.Spec.Name)
	if err != nil || len(c.Captured) != 1 || c.Captured[0].Path != "/home/user/kept/a" || c.Version.Captured != 1 || c.Version.CapturedSize != 17 ||
		c.Passed != 1 || c.Skipped[0].Path != "/etc/none" {
		t.Fatalf("CommitWorkspace = %+v, %v", c, err)
	}
	if got := h.ofVersion(t, ws, c.Version.Number, "/home/user/kept/a"); got != "/home/user/kept/a" {
		t.Errorf("what was captured reads %q", got)
	}
}

// testMainInWorkspace checks that the main program of a sandbox finds its
// workspace, and that its files are stored.
func (h workspaceCases) testMainInWorkspace(t *testing.T, ws string) {
	ctx := h.Context(t)
	box := h.sandbox(t, brig.Spec{Command: &brig.Command{Argv: h.argv("exit", "0")}, Workspace: brig.WorkspaceUse{Name: ws, Mode: brig.WorkspaceDirect}})
	for range 100 {
		got, err := h.Service.Get(ctx, box.Spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.State == brig.Ended {
			if got.Exit.Reason != brig.Exited || got.Exit.Code != 0 {
				t.Errorf("it ended as %+v", got.Exit)
			}
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("it does not end")
}

// testWorkspaces checks the contract of workspaces. The service must support workspaces.
func (h workspaceCases) testWorkspaces(t *testing.T) {
	ctx := h.Context(t)
	ws := name()
	w, err := h.Service.CreateWorkspace(ctx, ws)
	if err != nil || w.Name != ws || w.ID == "" || w.Created.IsZero() || w.Head != nil {
		t.Fatalf("CreateWorkspace = %+v, %v", w, err)
	}
	_, err = h.Service.CreateWorkspace(ctx, ws)
	wantKind(t, "a taken name", err, brig.AlreadyExists)
	use := brig.WorkspaceUse{Name: ws, Mode: brig.WorkspaceDirect, Prefixes: []string{"out/", "a"}}
	one := h.sandbox(t, brig.Spec{Workspace: use})
	if u := one.Spec.Workspace; u.Name != ws || u.ID != w.ID || u.Version != 0 || u.Mode != brig.WorkspaceDirect || !slices.Equal(u.Prefixes, []string{"out", "a"}) {
		t.Errorf("the sandbox has %+v", u)
	}
	if !strings.Contains(strings.Join(one.Notes, "\n"), "workspace: snapshot bridge: a copy of version 0 of "+ws) {
		t.Errorf("its notes are %q", one.Notes)
	}
	h.write(t, one, "a", "first")
	h.write(t, one, "out/b", "second")
	h.write(t, one, "elsewhere", "third")
	c, err := h.Service.CommitWorkspace(ctx, one.Spec.Name)
	if err != nil || c.Name != ws || c.Version == nil || c.Version.Number != 1 || c.Version.Files != 2 || c.Version.Size != 11 ||
		c.Version.Sandbox != one.ID || c.Changed != 3 || len(c.Changes) != 3 || c.Passed != 1 || c.Skipped[0].Path != "elsewhere" {
		t.Fatalf("CommitWorkspace = %+v, %v", c, err)
	}
	h.write(t, one, "a", "changed")
	got, err := h.Service.Stop(ctx, one.Spec.Name, 0)
	if err != nil || got.State != brig.Ended {
		t.Fatalf("Stop = %+v, %v", got, err)
	}
	two := h.sandbox(t, brig.Spec{Workspace: brig.WorkspaceUse{Name: ws}})
	if a, b, e := h.read(t, two, "a"), h.read(t, two, "out/b"), h.read(t, two, "elsewhere"); a != "changed" || b != "second" || e != string(brig.NotFound) {
		t.Errorf("the next sandbox has %q, %q, %q", a, b, e)
	}
	if u := two.Spec.Workspace; u.Mode != brig.WorkspaceOverlay || u.Version != 2 {
		t.Errorf("the next sandbox has %+v", u)
	}
	old := h.sandbox(t, brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Version: 1, Mode: brig.WorkspaceReadOnly}})
	if a := h.read(t, old, "a"); a != "first" {
		t.Errorf("version 1 has %q", a)
	}
	_, err = h.Service.CommitWorkspace(ctx, old.Spec.Name)
	wantKind(t, "a commit of what is to read only", err, brig.FailedPrecondition)
	vs, err := h.Service.WorkspaceVersions(ctx, ws)
	if err != nil || len(vs) != 2 || vs[0].Number != 2 || vs[1].Number != 1 || vs[0].Digest == vs[1].Digest {
		t.Fatalf("WorkspaceVersions = %+v, %v", vs, err)
	}
	d, err := h.Service.DiffWorkspace(ctx, ws, 1, 2)
	if err != nil || len(d) != 1 || d[0] != (brig.WorkspaceChange{Path: "a", Kind: brig.WorkspaceChanged, Type: brig.RegularFile, Size: 7}) {
		t.Errorf("DiffWorkspace = %+v, %v", d, err)
	}
	list, err := h.Service.WorkspaceFiles(ctx, ws, 1, "")
	if err != nil || len(list) != 2 || list[0].Path != "/workspace/a" || list[0].Type != brig.RegularFile || list[0].Size != 5 || list[1].Path != "/workspace/out/b" {
		t.Errorf("WorkspaceFiles = %+v, %v", list, err)
	}
	if list, err = h.Service.WorkspaceFiles(ctx, ws, 0, "/workspace/out"); err != nil || len(list) != 1 {
		t.Errorf("WorkspaceFiles below a path = %+v, %v", list, err)
	}
	if got := h.ofVersion(t, ws, 1, "/workspace/a") + h.ofVersion(t, ws, 0, "/workspace/a"); got != "firstchanged" {
		t.Errorf("ReadWorkspaceFile = %q", got)
	}
	v, err := h.Service.RestoreWorkspace(ctx, ws, 1)
	if err != nil || v.Number != 3 || v.Restored != 1 || v.Digest != vs[1].Digest {
		t.Errorf("RestoreWorkspace = %+v, %v", v, err)
	}
	o, err := h.Service.Run(ctx, brig.Program{Command: h.argv("echo", "hi"), Workspace: brig.WorkspaceUse{Name: ws, Mode: brig.WorkspaceDirect}}, brig.IO{})
	if err != nil || o.Workspace == nil || o.Workspace.Error != nil || o.Workspace.Version.Number != 3 || o.Workspace.Changed != 0 {
		t.Errorf("Run = %+v, %v", o, err)
	}
	t.Run("main program", func(t *testing.T) { h.testMainInWorkspace(t, ws) })
	t.Run("refuse", func(t *testing.T) { h.testRefuseWorkspaces(t, ws) })
	t.Run("other tenant", func(t *testing.T) { h.testForeignWorkspaces(t, ws) })
	find := func() *brig.Workspace {
		list, err := h.Service.Workspaces(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.Name == ws {
				return w
			}
		}
		return nil
	}
	if w := find(); w == nil || w.Head == nil || w.Head.Number != 3 {
		t.Errorf("it is listed as %+v", w)
	}
	t.Run("captures", func(t *testing.T) { h.testCaptures(t, ws) })
	lines, err := h.Service.TenantUsage(ctx, brig.UsageQuery{})
	if err != nil || len(lines) != 1 || lines[0].Stored <= 0 {
		t.Errorf("TenantUsage = %+v, %v", lines, err)
	}
	if err := h.Service.RemoveWorkspace(ctx, ws); err != nil {
		t.Fatal(err)
	}
	if w := find(); w != nil {
		t.Errorf("after its removal it is listed as %+v", w)
	}
	wantKind(t, "RemoveWorkspace", h.Service.RemoveWorkspace(ctx, ws), brig.NotFound)
	_, err = h.Service.CommitWorkspace(ctx, two.Spec.Name)
	wantKind(t, "a commit to what is gone", err, brig.NotFound)
}

func (h workspaceCases) testRefuseWorkspaces(t *testing.T, ws string) {
	ctx := h.Context(t)
	for what, c := range map[string]struct {
		spec  brig.Spec
		field string
	}{
		"unknown":        {brig.Spec{Workspace: brig.WorkspaceUse{Name: "none"}}, "workspace.name"},
		"no name":        {brig.Spec{Workspace: brig.WorkspaceUse{Mode: brig.WorkspaceDirect}}, "workspace.name"},
		"bad name":       {brig.Spec{Workspace: brig.WorkspaceUse{Name: "../" + ws}}, "workspace.name"},
		"bad mode":       {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Mode: "any"}}, "workspace.mode"},
		"bad version":    {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Version: 99}}, "workspace.version"},
		"negative":       {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Version: -1}}, "workspace.version"},
		"prefix beyond":  {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Prefixes: []string{"out", "../etc"}}}, "workspace.prefixes[1]"},
		"prefix inside":  {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Prefixes: []string{"a/../b"}}}, "workspace.prefixes[0]"},
		"prefix abroad":  {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Prefixes: []string{"/etc"}}}, "workspace.prefixes[0]"},
		"capture inside": {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Capture: []string{"/home", "/workspace/x"}}}, "workspace.capture[1]"},
		"capture near":   {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Capture: []string{"home"}}}, "workspace.capture[0]"},
		"capture none":   {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Capture: []string{"/home"}, Mode: brig.WorkspaceReadOnly}}, "workspace.capture"},
		"prefix of none": {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Prefixes: []string{"out"}, Mode: brig.WorkspaceReadOnly}}, "workspace.prefixes"},
	} {
		_, err := h.Service.Create(ctx, c.spec)
		wantField(t, what, err, c.field)
	}
	_, err := h.Service.CreateWorkspace(ctx, "No")
	wantField(t, "CreateWorkspace", err, "name")
	_, err = h.Service.RestoreWorkspace(ctx, ws, 0)
	wantField(t, "RestoreWorkspace", err, "version")
	_, err = h.Service.RestoreWorkspace(ctx, ws, 99)
	wantKind(t, "RestoreWorkspace", err, brig.NotFound)
	_, err = h.Service.DiffWorkspace(ctx, ws, -1, 1)
	wantField(t, "DiffWorkspace", err, "from")
	_, err = h.Service.DiffWorkspace(ctx, ws, 1, 99)
	wantKind(t, "DiffWorkspace", err, brig.NotFound)
	_, err = h.Service.WorkspaceFiles(ctx, ws, -1, "")
	wantField(t, "WorkspaceFiles", err, "version")
	_, err = h.Service.WorkspaceFiles(ctx, ws, 1, "a")
	wantField(t, "WorkspaceFiles", err, "path")
	_, err = h.Service.WorkspaceFiles(ctx, ws, 99, "")
	wantKind(t, "WorkspaceFiles", err, brig.NotFound)
	_, _, err = h.Service.ReadWorkspaceFile(ctx, ws, 1, "/workspace/none")
	wantKind(t, "ReadWorkspaceFile", err, brig.NotFound)
	box := h.sandbox(t, brig.Spec{})
	_, err = h.Service.CommitWorkspace(ctx, box.Spec.Name)
	wantKind(t, "a commit of nothing", err, brig.FailedPrecondition)
}

func (h workspaceCases) testForeignWorkspaces(t *testing.T, ws string) {
	ctx := h.OtherContext(t)
	list, err := h.Other.Workspaces(ctx)
	if err != nil || len(list) != 0 {
		t.Errorf("another tenant's workspaces: %v, %v", list, err)
	}
	_, err = h.Other.WorkspaceVersions(ctx, ws)
	wantKind(t, "WorkspaceVersions", err, brig.NotFound)
	_, err = h.Other.WorkspaceFiles(ctx, ws, 0, "")
	wantKind(t, "WorkspaceFiles", err, brig.NotFound)
	_, _, err = h.Other.ReadWorkspaceFile(ctx, ws, 1, "/workspace/a")
	wantKind(t, "ReadWorkspaceFile", err, brig.NotFound)
	_, err = h.Other.DiffWorkspace(ctx, ws, 0, 1)
	wantKind(t, "DiffWorkspace", err, brig.NotFound)
	_, err = h.Other.RestoreWorkspace(ctx, ws, 1)
	wantKind(t, "RestoreWorkspace", err, brig.NotFound)
	wantKind(t, "RemoveWorkspace", h.Other.RemoveWorkspace(ctx, ws), brig.NotFound)
	_, err = h.Other.Create(ctx, brig.Spec{Workspace: brig.WorkspaceUse{Name: ws}})
	wantField(t, "Create", err, "workspace.name")
	if _, err := h.Other.CreateWorkspace(ctx, ws); err != nil {
		t.Errorf("a name that another tenant has: %v", err)
	} else if err := h.Other.RemoveWorkspace(context.WithoutCancel(ctx), ws); err != nil {
		t.Error(err)
	}
}
