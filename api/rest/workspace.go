package rest

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// workspaceAPI has the handlers for workspaces.
type workspaceAPI struct{ *base }

// routes returns the routes of workspaces.
func (a workspaceAPI) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	return []route{
		{id: "create-workspace", method: post, pattern: "/v1/workspaces", tag: "workspaces", summary: "Create an empty workspace",
			handle: a.createWorkspace, op: brig.OpCreateWorkspace, in: v1.WorkspaceRequest{}, out: v1.Workspace{}, status: http.StatusCreated},
		{id: "list-workspaces", method: get, pattern: "/v1/workspaces", tag: "workspaces", summary: "List workspaces by name",
			large: true, handle: a.workspaces, out: v1.Workspaces{}},
		{id: "remove-workspace", method: del, pattern: "/v1/workspaces/{name}", tag: "workspaces", summary: "Remove a workspace with all versions",
			handle: a.removeWorkspace, status: http.StatusNoContent},
		{id: "list-workspace-versions", method: get, pattern: "/v1/workspaces/{name}/versions", tag: "workspaces", summary: "List a workspace's versions, newest first",
			large: true, handle: a.workspaceVersions, out: v1.WorkspaceVersions{}},
		{id: "list-workspace-files", method: get, pattern: "/v1/workspaces/{name}/versions/{version}/files", tag: "workspaces", summary: "List a version's files and links by path",
			notes: "Includes captures from outside /workspace. Version 0 is the newest.",
			large: true, handle: a.workspaceFiles, out: v1.WorkspaceFiles{}, query: []parameter{{name: "path", doc: "only this absolute path and the files below it; default: all", pattern: "^(/|$)", example: "/workspace"}}},
		{id: "read-workspace-file", method: get, pattern: "/v1/workspaces/{name}/versions/{version}/files/content", tag: "workspaces", summary: "Download a file of a version",
			notes:  "If a download fails midway, the connection breaks.",
			handle: a.readWorkspaceFile, isFile: true, query: []parameter{{name: "path", doc: "path of the file, as listed", required: true, nonempty: true, example: "/workspace/a"}}},
		{id: "diff-workspace", method: get, pattern: "/v1/workspaces/{name}/diff", tag: "workspaces", summary: "Compare two versions",
			large: true, handle: a.diffWorkspace, out: v1.WorkspaceDiff{}, query: []parameter{
				{name: "from", doc: "a version; 0 is the empty workspace before the first", required: true, number: true, max: 1<<31 - 1, example: 0},
				{name: "to", doc: "the other version", required: true, number: true, max: 1<<31 - 1, example: 1},
			}},
		{id: "restore-workspace", method: post, pattern: "/v1/workspaces/{name}/restore", tag: "workspaces", summary: "Restore an old version",
			large: true, handle: a.restoreWorkspace, op: brig.OpRestoreWorkspace, in: v1.RestoreRequest{}, out: v1.WorkspaceVersion{}, status: http.StatusCreated},
		{id: "commit-workspace", method: post, pattern: "/v1/sandboxes/{name}/commit", tag: "workspaces", summary: "Save a sandbox's workspace as a new version",
			notes:  "The changes since the sandbox's base version go on top of the newest version. If another sandbox changed one of these paths since, nothing is saved (409).",
			handle: a.commitWorkspace, out: v1.WorkspaceCommit{}},
	}
}

func (a workspaceAPI) createWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.WorkspaceRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := a.Service.CreateWorkspace(r.Context(), in.Name)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromWorkspace(out))
}

func (a workspaceAPI) workspaces(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Workspaces(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromWorkspaces(list))
}

func fromWorkspaces(list []*brig.Workspace) v1.Workspaces {
	out := v1.Workspaces{Workspaces: []v1.Workspace{}}
	for _, one := range list {
		out.Workspaces = append(out.Workspaces, v1.FromWorkspace(one))
	}
	return out
}

func (a workspaceAPI) removeWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveWorkspace(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a workspaceAPI) workspaceVersions(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.WorkspaceVersions(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromWorkspaceVersions(list))
}

func fromWorkspaceVersions(list []*brig.WorkspaceVersion) v1.WorkspaceVersions {
	out := v1.WorkspaceVersions{Versions: []v1.WorkspaceVersion{}}
	for _, v := range list {
		out.Versions = append(out.Versions, *v1.FromWorkspaceVersion(v))
	}
	return out
}

func (a workspaceAPI) workspaceFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
	version, err := intParam(r, "version")
	if err != nil {
		return err
	}
	list, err := a.Service.WorkspaceFiles(r.Context(), param(r, "name"), version, q.Get("path"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromWorkspaceFiles(list))
}

func (a workspaceAPI) readWorkspaceFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
	version, err := intParam(r, "version")
	if err != nil {
		return err
	}
	if q.Get("path") == "" {
		return brig.InvalidField("path", "is missing").WithHint("give it in the query: ?path=/workspace/a")
	}
	// Finding the file reads all names of the version, but sending the file
	// does not.
	done, err := httpapi.LeaseOf(r.Context()).WaitForTurn(r.Context())
	if err != nil {
		return err
	}
	size, body, err := a.Service.ReadWorkspaceFile(r.Context(), param(r, "name"), version, q.Get("path"))
	done()
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", v1.Octets)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	return httpapi.SendFile(w, r, body, size)
}

func (a workspaceAPI) diffWorkspace(w http.ResponseWriter, r *http.Request, q url.Values) error {
	var numbers [2]int
	for i, field := range []string{"from", "to"} {
		n, err := strconv.Atoi(q.Get(field))
		if err != nil {
			return brig.InvalidField(field, "%q is not a version", q.Get(field)).WithHint("give its number; 0 is the empty one")
		}
		numbers[i] = n
	}
	list, err := a.Service.DiffWorkspace(r.Context(), param(r, "name"), numbers[0], numbers[1])
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.WorkspaceDiff{Changes: v1.FromWorkspaceChanges(list)})
}

func (a workspaceAPI) restoreWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.RestoreRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := a.Service.RestoreWorkspace(r.Context(), param(r, "name"), in.Version)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromWorkspaceVersion(out))
}

func (a workspaceAPI) commitWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	out, err := a.Service.CommitWorkspace(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromWorkspaceCommit(out))
}
