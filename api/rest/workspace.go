package rest

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

func (a *sandboxAPI) createWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) workspaces(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) removeWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveWorkspace(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *sandboxAPI) workspaceVersions(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) workspaceFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
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

func (a *sandboxAPI) readWorkspaceFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
	version, err := intParam(r, "version")
	if err != nil {
		return err
	}
	if q.Get("path") == "" {
		return brig.InvalidField("path", "is missing").WithHint("give it in the query: ?path=/workspace/a")
	}
	// Finding the file reads all names of the version. Sending it does not.
	done, err := httpapi.LeaseOf(r.Context()).Turn(r.Context())
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
	return sendFile(w, r, body, size)
}

func (a *sandboxAPI) diffWorkspace(w http.ResponseWriter, r *http.Request, q url.Values) error {
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

func (a *sandboxAPI) restoreWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) commitWorkspace(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	out, err := a.Service.CommitWorkspace(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromWorkspaceCommit(out))
}
