package letta

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/tool"
)

// maxPage is the default number of entries in a list.
const maxPage = 1000

// organization returns the ID of the caller's tenant in this API.
func organization(r *http.Request) string {
	return tool.OrganizationID(brig.ActorFrom(r.Context()).Tenant)
}

// putTool creates or changes a tool setup.
func (d *API) putTool(r *http.Request, s brig.ToolSetup) (any, error) {
	out, err := d.Service.PutToolSetup(r.Context(), s)
	if err != nil {
		return nil, err
	}
	return v1.FromToolSetup(out, organization(r)), nil
}

func (d *API) putConfig(r *http.Request, body []byte) (any, error) {
	var req v1.LettaConfigBody
	if err := read(body, &req); err != nil {
		return nil, err
	}
	if len(nullToNil(req.Config)) == 0 && req.Type == "" {
		return nil, invalidFieldError("missing", "Field required", "config")
	}
	return d.putTool(r, brig.ToolSetup{Kind: brig.ToolKind(req.Type), Config: nullToNil(req.Config)})
}

func (d *API) changeConfig(r *http.Request, body []byte) (any, error) {
	id, err := configFromPath(r)
	if err != nil {
		return nil, err
	}
	var req v1.LettaConfigBody
	if err := read(body, &req); err != nil {
		return nil, err
	}
	if len(nullToNil(req.Config)) == 0 {
		return nil, invalidFieldError("missing", "Field required", "config")
	}
	return d.putTool(r, brig.ToolSetup{ID: id, Kind: brig.ToolKind(req.Type), Config: req.Config})
}

func (d *API) putLocal(r *http.Request, body []byte) (any, error) {
	var req json.RawMessage
	if err := read(body, &req); err != nil {
		return nil, err
	}
	return d.putTool(r, brig.ToolSetup{Kind: brig.ToolLocal, Config: req})
}

// defaultConfig returns a handler that creates a tool setup of a kind with its
// defaults.
func (d *API) defaultConfig(kind brig.ToolKind) func(*http.Request, []byte) (any, error) {
	return func(r *http.Request, _ []byte) (any, error) {
		return d.putTool(r, brig.ToolSetup{Kind: kind})
	}
}

// renew makes the next tool of the kind local run in a new sandbox.
func (d *API) renew(r *http.Request, _ []byte) (any, error) {
	s, err := d.Service.RenewToolSetup(r.Context(), brig.ToolLocal)
	if err != nil {
		return nil, err
	}
	return v1.FromToolSetup(s, organization(r)), nil
}

func (d *API) removeConfig(r *http.Request, _ []byte) (any, error) {
	id, err := configFromPath(r)
	if err != nil {
		return nil, err
	}
	return nil, d.Service.RemoveToolSetup(r.Context(), id)
}

func (d *API) listConfigs(r *http.Request, _ []byte) (any, error) {
	list, err := d.Service.ToolSetups(r.Context())
	if err != nil {
		return nil, err
	}
	out := []v1.LettaConfig{}
	kind := r.URL.Query().Get("sandbox_type")
	if kind != "" && !slices.Contains(brig.ToolKinds, brig.ToolKind(kind)) {
		return nil, invalidFieldError("enum", "Input should be 'e2b', 'modal' or 'local'", "sandbox_type")
	}
	for _, s := range list {
		if kind == "" || kind == string(s.Kind) {
			out = append(out, v1.FromToolSetup(s, organization(r)))
		}
	}
	return selectPage(r, out, func(c v1.LettaConfig) string { return c.ID })
}

// selectPage returns the requested part of a list.
func selectPage[T any](r *http.Request, list []T, id func(T) string) ([]T, error) {
	q, limit := r.URL.Query(), maxPage
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return nil, invalidFieldError("int_parsing", "Input should be a valid integer above 0", "limit")
		}
	}
	after := q.Get("after")
	if after == "" {
		after = q.Get("cursor")
	}
	if i := slices.IndexFunc(list, func(v T) bool { return id(v) == after }); i >= 0 {
		list = list[i+1:]
	} else if after != "" {
		return nil, brig.Errorf(brig.NotFound, "the list has no configuration %q", brig.Clip(after, 80)).WithHint("list again from the start")
	}
	return list[:min(limit, len(list))], nil
}

func (d *API) putVariable(r *http.Request, body []byte) (any, error) {
	setup, err := configFromPath(r)
	if err != nil {
		return nil, err
	}
	var req v1.LettaVariableBody
	if err := read(body, &req); err != nil {
		return nil, err
	}
	for name, v := range map[string]*string{"key": req.Key, "value": req.Value} {
		if v == nil {
			return nil, invalidFieldError("missing", "Field required", name)
		}
	}
	x := brig.ToolVariable{Setup: setup, Key: *req.Key, Value: *req.Value}
	if req.Description != nil {
		x.Description = *req.Description
	}
	out, err := d.Service.PutToolVariable(r.Context(), x)
	if err != nil {
		return nil, err
	}
	return v1.FromToolVariable(out, organization(r)), nil
}

func (d *API) changeVariable(r *http.Request, body []byte) (any, error) {
	id, err := variableFromPath(r)
	if err != nil {
		return nil, err
	}
	var req v1.LettaVariableBody
	if err := read(body, &req); err != nil {
		return nil, err
	}
	out, err := d.Service.ChangeToolVariable(r.Context(), id, brig.ToolVariableChange(req))
	if err != nil {
		return nil, err
	}
	return v1.FromToolVariable(out, organization(r)), nil
}

func (d *API) removeVariable(r *http.Request, _ []byte) (any, error) {
	id, err := variableFromPath(r)
	if err != nil {
		return nil, err
	}
	return nil, d.Service.RemoveToolVariable(r.Context(), id)
}

func (d *API) listVariables(r *http.Request, _ []byte) (any, error) {
	setup, err := configFromPath(r)
	if err != nil {
		return nil, err
	}
	list, err := d.Service.ToolVariables(r.Context(), setup)
	if err != nil {
		return nil, err
	}
	out := []v1.LettaVariable{}
	for _, x := range list {
		out = append(out, v1.FromToolVariable(x, organization(r)))
	}
	return selectPage(r, out, func(v v1.LettaVariable) string { return v.ID })
}
