package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// findWorkspace checks a sandbox's request for a workspace and finds the
// workspace.
func (ws *workspaces) findWorkspace(ctx context.Context, tenant string, spec brig.Spec) (brig.WorkspaceUse, error) {
	use := spec.Workspace
	use.ID = ""
	if use.Name == "" {
		if use.Mode != "" || use.Version != 0 || len(use.Prefixes)+len(use.Capture) > 0 {
			return use, brig.InvalidField("workspace.name", "the workspace has no name").WithHint("name a workspace, or leave it out")
		}
		return use, nil
	}
	if err := ws.checkWorkspacesStored(); err != nil {
		return use, err
	}
	if use.Mode == "" {
		use.Mode = brig.WorkspaceOverlay
	}
	if !slices.Contains(brig.WorkspaceModes, use.Mode) {
		return use, brig.InvalidField("workspace.mode", "no mode %q", truncate(string(use.Mode))).WithHint("use one of: %v", brig.WorkspaceModes)
	}
	if use.Mode == brig.WorkspaceReadOnly && len(use.Prefixes) > 0 {
		return use, brig.InvalidField("workspace.prefixes", "nothing can be written").WithHint("use the mode overlay or direct")
	}
	if use.Mode == brig.WorkspaceReadOnly && len(use.Capture) > 0 {
		return use, brig.InvalidField("workspace.capture", "no changes are saved").WithHint("use the mode overlay or direct")
	}
	if use.Version < 0 {
		return use, brig.InvalidField("workspace.version", "%d is not a version", use.Version).WithHint("leave it out for the newest")
	}
	var err error
	if use.Prefixes, err = workspace.CheckPrefixes(use.Prefixes); err != nil {
		return use, err
	}
	if use.Capture, err = workspace.CheckCapture(use.Capture); err != nil {
		return use, err
	}
	use.ID, use.Version, err = ws.Options.Workspaces.Find(ctx, tenant, use.Name, use.Version)
	if brig.KindOf(err) == brig.NotFound {
		field := "workspace.name"
		if spec.Workspace.Version != 0 && strings.Contains(err.Error(), "version") {
			field = "workspace.version"
		}
		apiErr := brig.AsError(err)
		return use, brig.InvalidField(field, "%s", apiErr.Message).WithHint("%s", apiErr.Hint)
	}
	return use, err
}

// beginUnpack holds the workspace version for a machine until done is called. It does nothing if
// the machine uses no workspace.
func (ws *workspaces) beginUnpack(ctx context.Context, tenant string, use brig.WorkspaceUse) (u *workspace.Unpacking, done func(), err error) {
	if use.Name == "" {
		return nil, func() {}, nil
	}
	if err := ws.checkWorkspacesStored(); err != nil {
		return nil, nil, err
	}
	if u, err = ws.Options.Workspaces.BeginUnpack(ctx, tenant, use); err != nil {
		return nil, nil, err
	}
	return u, u.Close, nil
}

// fillWorkspace unpacks a version of the workspace into an instance, before any
// program runs in it.
func (ws *workspaces) fillWorkspace(ctx context.Context, m *machine) error {
	use := m.rec.Spec.Workspace
	if m.workspace == nil {
		return nil
	}
	o := brig.UnpackOptions{User: m.rec.Spec.User, Sealed: use.Mode == brig.WorkspaceReadOnly}
	err := m.in.Unpack(ctx, workspaceDir, o, func(put func(brig.Node, io.Reader) error) error {
		return m.workspace.Unpack(ctx, put)
	})
	if err != nil {
		return err
	}
	m.notes = append(m.notes, workspaceNote(use))
	return nil
}

// workspaceNote describes how a sandbox's workspace is used.
func workspaceNote(use brig.WorkspaceUse) string {
	what := map[brig.WorkspaceMode]string{
		brig.WorkspaceReadOnly: "nothing can be written",
		brig.WorkspaceOverlay:  "what is written is kept when somebody commits it",
		brig.WorkspaceDirect:   "what is written is kept when the sandbox is stopped, killed or removed, when its main program or its lease ends, every few minutes, and when somebody commits it",
	}[use.Mode]
	return fmt.Sprintf("workspace: snapshot bridge: a copy of version %d of %s, made at the beginning; %s", use.Version, use.Name, what)
}

// captureWorkspace reads the files of an instance and creates a version from
// them.
func (ws *workspaces) captureWorkspace(ctx context.Context, c *workspace.Capture, rec *brig.Record, in brig.Instance, actor string) (*brig.WorkspaceCommit, error) {
	packCtx, p, stop := newPace(ctx)
	defer stop()
	err := in.Pack(packCtx, workspaceDir, p.measure(func(n brig.Node, r io.Reader) error { return c.Add(ctx, n, r) }))
	if paths := rec.Spec.Workspace.Capture; err == nil && len(paths) > 0 {
		err = in.Changed(packCtx, paths, rec.Created, p.measure(func(n brig.Node, r io.Reader) error { return c.AddOutside(ctx, n, r) }))
	}
	stop()
	if err != nil {
		if slow, ok := errors.AsType[*brig.Error](context.Cause(packCtx)); ok && ctx.Err() == nil {
			return nil, slow
		}
		return nil, err
	}
	return c.Commit(ctx, actor)
}

// commit creates a version of an instance's workspace.
func (ws *workspaces) commit(ctx context.Context, rec *brig.Record, in brig.Instance, actor string) (*brig.WorkspaceCommit, error) {
	if err := ws.checkWorkspacesStored(); err != nil {
		return nil, err
	}
	defer ws.commitLock(rec.ID)()
	if !rec.Spec.Ephemeral { // the workspace's version may have changed while this call waited for the lock
		now, err := ws.Store.Get(ctx, rec.Tenant, string(rec.ID))
		if err != nil {
			return nil, err
		}
		rec = now
	}
	a, err := ws.getAccount(ctx, rec.Tenant)
	if err != nil {
		return nil, err
	}
	c, err := ws.Options.Workspaces.Begin(ctx, rec.Tenant, rec.ID, rec.Spec.Workspace, a.Quota().Workspaces)
	if err != nil {
		return nil, err
	}
	out, err := ws.captureWorkspace(ctx, c, rec, in, actor)
	c.Close()
	ws.sweepIfNeeded(rec.Tenant)
	if err != nil || out.Changed == 0 || rec.Spec.Ephemeral {
		return out, err
	}
	// The next commit is compared with this one. If the server dies before it
	// updates the record, the workspace store still finds the sandbox's last
	// version.
	_, err = ws.updateRecord(context.WithoutCancel(ctx), rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Spec.Workspace.Version = max(r.Spec.Workspace.Version, out.Version.Number)
		return nil
	})
	return out, err
}
