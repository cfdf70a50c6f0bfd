package engine

import (
	"context"
	"io"
	"strconv"

	"github.com/brig-run/brig"
)

// noWorkspaces is what callers are told where none can be kept.
func (e *Engine) noWorkspaces() error {
	if e.Options.Workspaces != nil {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "workspaces are not kept here").WithHint("ask a server: brig serve")
}

// onWorkspace lets a call in that names a workspace, and does f.
func (e *Engine) onWorkspace(ctx context.Context, op brig.Op, name string, f func(v *visit) error) (err error) {
	v, err := e.enter(ctx, op, "", func(v *visit) { v.say(brig.DetailWorkspace, clip(name)) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := e.noWorkspaces(); err != nil {
		return err
	}
	return f(v)
}

// CreateWorkspace implements brig.Service.
func (e *Engine) CreateWorkspace(ctx context.Context, name string) (w *brig.Workspace, err error) {
	err = e.onWorkspace(ctx, brig.OpCreateWorkspace, name, func(v *visit) error {
		w, err = e.Options.Workspaces.Create(ctx, v.actor.Tenant, name)
		return err
	})
	return w, err
}

// Workspaces implements brig.Service.
func (e *Engine) Workspaces(ctx context.Context) (out []*brig.Workspace, err error) {
	err = e.onWorkspace(ctx, brig.OpWorkspaces, "", func(v *visit) error {
		out, err = e.Options.Workspaces.List(ctx, v.actor.Tenant)
		return err
	})
	return out, err
}

// RemoveWorkspace implements brig.Service. What the workspace had is swept
// afterwards, and nobody waits for that.
func (e *Engine) RemoveWorkspace(ctx context.Context, name string) error {
	return e.onWorkspace(ctx, brig.OpRemoveWorkspace, name, func(v *visit) error {
		if err := e.Options.Workspaces.Remove(ctx, v.actor.Tenant, name); err != nil {
			return err
		}
		e.sweepWorkspaces(v.actor.Tenant)
		return nil
	})
}

func (e *Engine) sweepWorkspaces(tenant string) {
	e.work.Go(func() {
		n, err := e.Options.Workspaces.Sweep(e.ctx, tenant)
		if err != nil && e.ctx.Err() == nil {
			e.Log.Error("sweep workspaces", "tenant", tenant, "err", err)
			return
		}
		e.Log.Debug("swept workspaces", "tenant", tenant, "objects", n)
	})
}

// dropWorkspaces forgets all that a tenant has, who goes: another of its name
// must not find it.
func (e *Engine) dropWorkspaces(ctx context.Context, tenant string) error {
	if e.Options.Workspaces == nil {
		return nil
	}
	all, err := e.Options.Workspaces.List(ctx, tenant)
	for _, w := range all {
		if err == nil {
			err = e.Options.Workspaces.Remove(ctx, tenant, w.Name)
		}
	}
	if err == nil && len(all) > 0 {
		e.sweepWorkspaces(tenant)
	}
	return err
}

// WorkspaceVersions implements brig.Service.
func (e *Engine) WorkspaceVersions(ctx context.Context, name string) (out []*brig.WorkspaceVersion, err error) {
	err = e.onWorkspace(ctx, brig.OpWorkspaceVersions, name, func(v *visit) error {
		out, err = e.Options.Workspaces.Versions(ctx, v.actor.Tenant, name)
		return err
	})
	return out, err
}

// WorkspaceFiles implements brig.Service.
func (e *Engine) WorkspaceFiles(ctx context.Context, name string, version int, path string) (out []brig.WorkspaceFile, err error) {
	err = e.onWorkspace(ctx, brig.OpWorkspaceFiles, name, func(v *visit) error {
		if err := checkVersion(version); err != nil {
			return err
		}
		if path != "" && path[0] != '/' {
			return brig.InvalidField("path", "%q is not absolute", clip(path)).WithHint("for example /workspace or /home/user")
		}
		out, err = e.Options.Workspaces.Files(ctx, v.actor.Tenant, name, version, path)
		return err
	})
	return out, err
}

// ReadWorkspaceFile implements brig.Service.
func (e *Engine) ReadWorkspaceFile(ctx context.Context, name string, version int, path string) (size int64, r io.ReadCloser, err error) {
	err = e.onWorkspace(ctx, brig.OpReadWorkspaceFile, name, func(v *visit) error {
		if err := checkVersion(version); err != nil {
			return err
		}
		size, r, err = e.Options.Workspaces.Read(ctx, v.actor.Tenant, name, version, path)
		return err
	})
	return size, r, err
}

func checkVersion(n int) error {
	if n < 0 {
		return brig.InvalidField("version", "%d is not a version", n).WithHint("list the versions to see what exists; 0 is the newest")
	}
	return nil
}

// DiffWorkspace implements brig.Service.
func (e *Engine) DiffWorkspace(ctx context.Context, name string, from, to int) (out []brig.WorkspaceChange, err error) {
	err = e.onWorkspace(ctx, brig.OpDiffWorkspace, name, func(v *visit) error {
		for field, n := range map[string]int{"from": from, "to": to} {
			if n < 0 {
				return brig.InvalidField(field, "%d is not a version", n).WithHint("list the versions to see what exists; 0 is the empty one")
			}
		}
		out, err = e.Options.Workspaces.Diff(ctx, v.actor.Tenant, name, from, to)
		return err
	})
	return out, err
}

// RestoreWorkspace implements brig.Service.
func (e *Engine) RestoreWorkspace(ctx context.Context, name string, version int) (out *brig.WorkspaceVersion, err error) {
	err = e.onWorkspace(ctx, brig.OpRestoreWorkspace, name, func(v *visit) error {
		if version < 1 {
			return brig.InvalidField("version", "%d is not a version", version).WithHint("list the versions to see what exists")
		}
		out, err = e.Options.Workspaces.Restore(ctx, v.actor.Tenant, v.actor.Name, name, version)
		if err == nil {
			v.say(brig.DetailVersion, strconv.Itoa(out.Number))
		}
		return err
	})
	return out, err
}

// CommitWorkspace implements brig.Service.
func (e *Engine) CommitWorkspace(ctx context.Context, sandbox string) (out *brig.WorkspaceCommit, err error) {
	err = e.inside(ctx, brig.OpCommitWorkspace, sandbox, func(v *visit, in brig.Instance) error {
		use := v.rec.Spec.Workspace
		v.say(brig.DetailWorkspace, use.Name)
		switch {
		case use.Name == "":
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q has no workspace", v.rec.Spec.Name).
				WithHint("create one with a workspace")
		case use.Mode == brig.WorkspaceReadOnly:
			return brig.Errorf(brig.FailedPrecondition, "sandbox %q has its workspace to read only", v.rec.Spec.Name).
				WithHint("create one with the mode overlay or direct")
		}
		if out, err = e.commit(ctx, v.rec, in, v.actor.Name); err == nil && out.Version != nil {
			v.say(brig.DetailVersion, strconv.Itoa(out.Version.Number))
		}
		return err
	})
	return out, err
}
