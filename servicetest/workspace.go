package servicetest

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// write puts a file into a sandbox's workspace.
func (h Harness) write(t *testing.T, box *brig.Sandbox, path, content string) {
	t.Helper()
	_, err := h.Service.Files(box.Spec.Name).Write(h.Context(t), brig.Path{Name: "/workspace/" + path}, brig.FileWrite{}, strings.NewReader(content))
	if err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

// read is what a file of a sandbox's workspace has, or how it cannot be read.
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

// workspaces checks what is promised of directories that outlive sandboxes.
// The service must be able to keep them.
func (h Harness) workspaces(t *testing.T) {
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
	v, err := h.Service.RestoreWorkspace(ctx, ws, 1)
	if err != nil || v.Number != 3 || v.Restored != 1 || v.Digest != vs[1].Digest {
		t.Errorf("RestoreWorkspace = %+v, %v", v, err)
	}
	o, err := h.Service.Run(ctx, brig.Program{Command: h.argv("echo", "hi"), Workspace: brig.WorkspaceUse{Name: ws, Mode: brig.WorkspaceDirect}}, brig.IO{})
	if err != nil || o.Workspace == nil || o.Workspace.Error != nil || o.Workspace.Version.Number != 3 || o.Workspace.Changed != 0 {
		t.Errorf("Run = %+v, %v", o, err)
	}
	t.Run("refuse", func(t *testing.T) { h.refuseWorkspaces(t, ws) })
	t.Run("other tenant", func(t *testing.T) { h.foreignWorkspaces(t, ws) })
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

func (h Harness) refuseWorkspaces(t *testing.T, ws string) {
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
		"prefix of none": {brig.Spec{Workspace: brig.WorkspaceUse{Name: ws, Prefixes: []string{"out"}, Mode: brig.WorkspaceReadOnly}}, "workspace.prefixes"},
		"main program":   {brig.Spec{Command: &brig.Command{Argv: h.argv("echo", "hi")}, Workspace: brig.WorkspaceUse{Name: ws}}, "workspace"},
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
	box := h.sandbox(t, brig.Spec{})
	_, err = h.Service.CommitWorkspace(ctx, box.Spec.Name)
	wantKind(t, "a commit of nothing", err, brig.FailedPrecondition)
}

func (h Harness) foreignWorkspaces(t *testing.T, ws string) {
	ctx := h.OtherContext(t)
	list, err := h.Other.Workspaces(ctx)
	if err != nil || len(list) != 0 {
		t.Errorf("another tenant's workspaces: %v, %v", list, err)
	}
	_, err = h.Other.WorkspaceVersions(ctx, ws)
	wantKind(t, "WorkspaceVersions", err, brig.NotFound)
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
