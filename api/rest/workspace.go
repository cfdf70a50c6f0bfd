package rest

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) createWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.WorkspaceRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := a.Service.CreateWorkspace(r.Context(), in.Name)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, wire.FromWorkspace(out))
}

func (a *api) workspaces(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Workspaces(r.Context())
	if err != nil {
		return err
	}
	out := wire.Workspaces{Workspaces: []wire.Workspace{}}
	for _, one := range list {
		out.Workspaces = append(out.Workspaces, wire.FromWorkspace(one))
	}
	return door.WriteJSON(w, http.StatusOK, out)
}

func (a *api) removeWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveWorkspace(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) workspaceVersions(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.WorkspaceVersions(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	out := wire.WorkspaceVersions{Versions: []wire.WorkspaceVersion{}}
	for _, v := range list {
		out.Versions = append(out.Versions, *wire.FromWorkspaceVersion(v))
	}
	return door.WriteJSON(w, http.StatusOK, out)
}

func (a *api) workspaceFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
	version, err := whole(r, "version")
	if err != nil {
		return err
	}
	list, err := a.Service.WorkspaceFiles(r.Context(), param(r, "name"), version, q.Get("path"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromWorkspaceFiles(list))
}

func (a *api) readWorkspaceFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
	version, err := whole(r, "version")
	if err != nil {
		return err
	}
	if q.Get("path") == "" {
		return brig.InvalidField("path", "is missing").WithHint("give it in the query: ?path=/workspace/a")
	}
	size, body, err := a.Service.ReadWorkspaceFile(r.Context(), param(r, "name"), version, q.Get("path"))
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", wire.Octets)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	return sendFile(w, r, body, size)
}

func (a *api) diffWorkspace(w http.ResponseWriter, r *http.Request, q url.Values) error {
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
	return door.WriteJSON(w, http.StatusOK, wire.WorkspaceDiff{Changes: wire.FromWorkspaceChanges(list)})
}

func (a *api) restoreWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.RestoreRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := a.Service.RestoreWorkspace(r.Context(), param(r, "name"), in.Version)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, wire.FromWorkspaceVersion(out))
}

func (a *api) commitWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	out, err := a.Service.CommitWorkspace(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromWorkspaceCommit(out))
}
