package engine

import (
	"context"
	"io"
	"strconv"

	"github.com/brig-run/brig"
)

// workspaces copies persistent directories into and out of sandboxes.
type workspaces struct {
	*gate
	sweeps sweepQueue
}

// checkWorkspacesStored returns an error if this engine does not keep workspaces.
func (ws *workspaces) checkWorkspacesStored() error {
	if ws.Options.Workspaces != nil {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "this process stores no workspaces").WithHint("ask a server: brig serve")
}

// doWithWorkspace authorizes a call that names a workspace and calls f.
func (ws *workspaces) doWithWorkspace(ctx context.Context, op brig.Op, name string, f func(v *call) error) error {
	return ws.doWithDetails(ctx, op, "", withDetail(brig.DetailWorkspace, truncate(name)), func(v *call) error {
		if err := ws.checkWorkspacesStored(); err != nil {
			return err
		}
		return f(v)
	})
}

// CreateWorkspace implements brig.Service.
func (ws *workspaces) CreateWorkspace(ctx context.Context, name string) (w *brig.Workspace, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpCreateWorkspace, name, func(v *call) error {
		done, err := v.account.lockWorkspaces(ctx)
		if err != nil {
			return err
		}
		defer done()
		w, err = ws.Options.Workspaces.Create(ctx, v.actor.Tenant, name)
		return err
	})
	return w, err
}

// Workspaces implements brig.Service.
func (ws *workspaces) Workspaces(ctx context.Context) (out []*brig.Workspace, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpWorkspaces, "", func(v *call) error {
		out, err = ws.Options.Workspaces.List(ctx, v.actor.Tenant)
		return err
	})
	return out, err
}

// RemoveWorkspace implements brig.Service. The workspace's objects are removed
// later, in the background.
func (ws *workspaces) RemoveWorkspace(ctx context.Context, name string) error {
	return ws.doWithWorkspace(ctx, brig.OpRemoveWorkspace, name, func(v *call) error {
		if err := ws.Options.Workspaces.Remove(ctx, v.actor.Tenant, name); err != nil {
			return err
		}
		ws.sweepWorkspaces(v.actor.Tenant)
		return nil
	})
}

// WorkspaceVersions implements brig.Service.
func (ws *workspaces) WorkspaceVersions(ctx context.Context, name string) (out []*brig.WorkspaceVersion, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpWorkspaceVersions, name, func(v *call) error {
		out, err = ws.Options.Workspaces.Versions(ctx, v.actor.Tenant, name)
		return err
	})
	return out, err
}

// WorkspaceFiles implements brig.Service.
func (ws *workspaces) WorkspaceFiles(ctx context.Context, name string, version int, path string) (out []brig.WorkspaceFile, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpWorkspaceFiles, name, func(v *call) error {
		if err := checkVersion(version); err != nil {
			return err
		}
		if path != "" && path[0] != '/' {
			return brig.InvalidField("path", "%q is not absolute", truncate(path)).WithHint("for example /workspace or /home/user")
		}
		out, err = ws.Options.Workspaces.Files(ctx, v.actor.Tenant, name, version, path)
		return err
	})
	return out, err
}

// ReadWorkspaceFile implements brig.Service.
func (ws *workspaces) ReadWorkspaceFile(ctx context.Context, name string, version int, path string) (size int64, r io.ReadCloser, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpReadWorkspaceFile, name, func(v *call) error {
		if err := checkVersion(version); err != nil {
			return err
		}
		size, r, err = ws.Options.Workspaces.Read(ctx, v.actor.Tenant, name, version, path)
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
func (ws *workspaces) DiffWorkspace(ctx context.Context, name string, from, to int) (out []brig.WorkspaceChange, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpDiffWorkspace, name, func(v *call) error {
		for field, n := range map[string]int{"from": from, "to": to} {
			if n < 0 {
				return brig.InvalidField(field, "%d is not a version", n).WithHint("list the versions to see what exists; 0 is the empty one")
			}
		}
		out, err = ws.Options.Workspaces.Diff(ctx, v.actor.Tenant, name, from, to)
		return err
	})
	return out, err
}

// RestoreWorkspace implements brig.Service.
func (ws *workspaces) RestoreWorkspace(ctx context.Context, name string, version int) (out *brig.WorkspaceVersion, err error) {
	err = ws.doWithWorkspace(ctx, brig.OpRestoreWorkspace, name, func(v *call) error {
		if version < 1 {
			return brig.InvalidField("version", "%d is not a version", version).WithHint("list the versions to see what exists")
		}
		out, err = ws.Options.Workspaces.Restore(ctx, v.actor.Tenant, v.actor.Name, name, version, v.account.Quota().Workspaces)
		ws.sweepIfNeeded(v.actor.Tenant)
		if err == nil {
			v.addDetail(brig.DetailVersion, strconv.Itoa(out.Number))
		}
		return err
	})
	return out, err
}
