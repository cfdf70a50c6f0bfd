package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// workspaceCalls are the calls for workspaces.
type workspaceCalls struct{ *conn }

// CreateWorkspace implements brig.Service.
func (c workspaceCalls) CreateWorkspace(ctx context.Context, name string) (*brig.Workspace, error) {
	var out v1.Workspace
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/workspaces"}, v1.WorkspaceRequest{Name: name}, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Workspaces implements brig.Service.
func (c workspaceCalls) Workspaces(ctx context.Context) ([]*brig.Workspace, error) {
	var out v1.Workspaces
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/workspaces"}, nil, &out); err != nil {
		return nil, err
	}
	list := []*brig.Workspace{}
	for _, w := range out.Workspaces {
		list = append(list, w.Domain())
	}
	return list, nil
}

// RemoveWorkspace implements brig.Service.
func (c workspaceCalls) RemoveWorkspace(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/workspaces/" + escapeSegment(name)}, nil, nil)
}

// WorkspaceVersions implements brig.Service.
func (c workspaceCalls) WorkspaceVersions(ctx context.Context, name string) ([]*brig.WorkspaceVersion, error) {
	var out v1.WorkspaceVersions
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/workspaces/" + escapeSegment(name) + "/versions"}, nil, &out); err != nil {
		return nil, err
	}
	list := []*brig.WorkspaceVersion{}
	for _, v := range out.Versions {
		list = append(list, v.Domain())
	}
	return list, nil
}

func versionPath(name string, version int) string {
	return "/v1/workspaces/" + escapeSegment(name) + "/versions/" + strconv.Itoa(version) + "/files"
}

// WorkspaceFiles implements brig.Service.
func (c workspaceCalls) WorkspaceFiles(ctx context.Context, name string, version int, path string) ([]brig.WorkspaceFile, error) {
	var out v1.WorkspaceFiles
	rq := request{method: http.MethodGet, path: versionPath(name, version), query: queryOf("path", path)}
	if err := c.call(ctx, rq, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// ReadWorkspaceFile implements brig.Service.
func (c workspaceCalls) ReadWorkspaceFile(ctx context.Context, name string, version int, path string) (int64, io.ReadCloser, error) {
	resp, err := c.send(ctx, request{
		method: http.MethodGet, path: versionPath(name, version) + "/content", query: url.Values{"path": {path}}, accept: v1.Octets,
	})
	if err != nil {
		return 0, nil, err
	}
	if resp.ContentLength < 0 {
		resp.Body.Close()
		return 0, nil, c.connectionError(ctx, "the server's answer does not say how large the file is", nil)
	}
	return resp.ContentLength, content{resp.Body, ctx, c.conn}, nil
}

// DiffWorkspace implements brig.Service.
func (c workspaceCalls) DiffWorkspace(ctx context.Context, name string, from, to int) ([]brig.WorkspaceChange, error) {
	var out v1.WorkspaceDiff
	q := url.Values{"from": {strconv.Itoa(from)}, "to": {strconv.Itoa(to)}}
	rq := request{method: http.MethodGet, path: "/v1/workspaces/" + escapeSegment(name) + "/diff", query: q}
	if err := c.call(ctx, rq, nil, &out); err != nil {
		return nil, err
	}
	return v1.ToWorkspaceChanges(out.Changes), nil
}

// RestoreWorkspace implements brig.Service.
func (c workspaceCalls) RestoreWorkspace(ctx context.Context, name string, version int) (*brig.WorkspaceVersion, error) {
	var out v1.WorkspaceVersion
	rq := request{method: http.MethodPost, path: "/v1/workspaces/" + escapeSegment(name) + "/restore"}
	if err := c.call(ctx, rq, v1.RestoreRequest{Version: version}, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// CommitWorkspace implements brig.Service.
func (c workspaceCalls) CommitWorkspace(ctx context.Context, sandbox string) (*brig.WorkspaceCommit, error) {
	var out v1.WorkspaceCommit
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/sandboxes/" + escapeSegment(sandbox) + "/commit"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}
