package letta

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/tool"
)

// maxPage is how many rows a list has if nobody says.
const maxPage = 1000

// organization is what the caller's tenant is called here.
func organization(r *http.Request) string {
	return tool.Organization(brig.ActorFrom(r.Context()).Tenant)
}

// put makes or changes a setup.
func (d *Door) put(r *http.Request, s brig.ToolSetup) (any, error) {
	out, err := d.Service.PutToolSetup(r.Context(), s)
	if err != nil {
		return nil, err
	}
	return wire.FromToolSetup(out, organization(r)), nil
}

func (d *Door) putConfig(r *http.Request, body []byte) (any, error) {
	var asked wire.LettaConfigBody
	if err := read(body, &asked); err != nil {
		return nil, err
	}
	if len(present(asked.Config)) == 0 && asked.Type == "" {
		return nil, complain("missing", "Field required", "config")
	}
	return d.put(r, brig.ToolSetup{Kind: brig.ToolKind(asked.Type), Config: present(asked.Config)})
}

func (d *Door) changeConfig(r *http.Request, body []byte) (any, error) {
	id, err := config(r)
	if err != nil {
		return nil, err
	}
	var asked wire.LettaConfigBody
	if err := read(body, &asked); err != nil {
		return nil, err
	}
	if len(present(asked.Config)) == 0 {
		return nil, complain("missing", "Field required", "config")
	}
	return d.put(r, brig.ToolSetup{ID: id, Kind: brig.ToolKind(asked.Type), Config: asked.Config})
}

func (d *Door) putLocal(r *http.Request, body []byte) (any, error) {
	var asked json.RawMessage
	if err := read(body, &asked); err != nil {
		return nil, err
	}
	return d.put(r, brig.ToolSetup{Kind: brig.ToolLocal, Config: asked})
}

// defaultConfig makes a setup of a kind that says nothing.
func (d *Door) defaultConfig(kind brig.ToolKind) func(*http.Request, []byte) (any, error) {
	return func(r *http.Request, _ []byte) (any, error) {
		return d.put(r, brig.ToolSetup{Kind: kind})
	}
}

// renew has the next tool of the kind local find a fresh box.
func (d *Door) renew(r *http.Request, _ []byte) (any, error) {
	s, err := d.Service.RenewToolSetup(r.Context(), brig.ToolLocal)
	if err != nil {
		return nil, err
	}
	return wire.FromToolSetup(s, organization(r)), nil
}

func (d *Door) removeConfig(r *http.Request, _ []byte) (any, error) {
	id, err := config(r)
	if err != nil {
		return nil, err
	}
	return nil, d.Service.RemoveToolSetup(r.Context(), id)
}

func (d *Door) configs(r *http.Request, _ []byte) (any, error) {
	list, err := d.Service.ToolSetups(r.Context())
	if err != nil {
		return nil, err
	}
	out := []wire.LettaConfig{}
	kind := r.URL.Query().Get("sandbox_type")
	if kind != "" && !slices.Contains(brig.ToolKinds, brig.ToolKind(kind)) {
		return nil, complain("enum", "Input should be 'e2b', 'modal' or 'local'", "sandbox_type")
	}
	for _, s := range list {
		if kind == "" || kind == string(s.Kind) {
			out = append(out, wire.FromToolSetup(s, organization(r)))
		}
	}
	return page(r, out, func(c wire.LettaConfig) string { return c.ID })
}

// page is the part of a list that is asked for: so many after one.
func page[T any](r *http.Request, list []T, id func(T) string) ([]T, error) {
	q, limit := r.URL.Query(), maxPage
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return nil, complain("int_parsing", "Input should be a valid integer above 0", "limit")
		}
	}
	after := q.Get("after")
	if after == "" {
		after = q.Get("cursor")
	}
	if i := slices.IndexFunc(list, func(v T) bool { return id(v) == after }); i >= 0 {
		list = list[i+1:]
	} else if after != "" {
		return nil, brig.Errorf(brig.NotFound, "the list has no %q", brig.Clip(after, 80)).WithHint("begin the list anew")
	}
	return list[:min(limit, len(list))], nil
}

func (d *Door) putVariable(r *http.Request, body []byte) (any, error) {
	setup, err := config(r)
	if err != nil {
		return nil, err
	}
	var asked wire.LettaVariableBody
	if err := read(body, &asked); err != nil {
		return nil, err
	}
	for name, v := range map[string]*string{"key": asked.Key, "value": asked.Value} {
		if v == nil {
			return nil, complain("missing", "Field required", name)
		}
	}
	x := brig.ToolVariable{Setup: setup, Key: *asked.Key, Value: *asked.Value}
	if asked.Description != nil {
		x.Description = *asked.Description
	}
	out, err := d.Service.PutToolVariable(r.Context(), x)
	if err != nil {
		return nil, err
	}
	return wire.FromToolVariable(out, organization(r)), nil
}

func (d *Door) changeVariable(r *http.Request, body []byte) (any, error) {
	id, err := variable(r)
	if err != nil {
		return nil, err
	}
	var asked wire.LettaVariableBody
	if err := read(body, &asked); err != nil {
		return nil, err
	}
	out, err := d.Service.ChangeToolVariable(r.Context(), id, brig.ToolVariableChange(asked))
	if err != nil {
		return nil, err
	}
	return wire.FromToolVariable(out, organization(r)), nil
}

func (d *Door) removeVariable(r *http.Request, _ []byte) (any, error) {
	id, err := variable(r)
	if err != nil {
		return nil, err
	}
	return nil, d.Service.RemoveToolVariable(r.Context(), id)
}

func (d *Door) variables(r *http.Request, _ []byte) (any, error) {
	setup, err := config(r)
	if err != nil {
		return nil, err
	}
	list, err := d.Service.ToolVariables(r.Context(), setup)
	if err != nil {
		return nil, err
	}
	out := []wire.LettaVariable{}
	for _, x := range list {
		out = append(out, wire.FromToolVariable(x, organization(r)))
	}
	return page(r, out, func(v wire.LettaVariable) string { return v.ID })
}
