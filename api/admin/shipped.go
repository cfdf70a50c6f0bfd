package admin

import (
	"fmt"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// shipped is the dialect that RAGFlow ships: every answer is {code, message,
// data}, and every error HTTP 400.
type shipped struct{ svc brig.Service }

// envelope is what every answer of the shipped dialect is in.
type envelope struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

func (s *shipped) answer(w http.ResponseWriter, v any) {
	_ = door.WriteJSON(w, http.StatusOK, envelope{0, "success", v}) // the client may have gone
}

func (s *shipped) fail(w http.ResponseWriter, err error) {
	code, status := http.StatusBadRequest, http.StatusBadRequest
	switch door.Status(brig.KindOf(err)) {
	case http.StatusUnauthorized, http.StatusForbidden:
		// Who is not let in is told so by the status, too.
		status = door.Status(brig.KindOf(err))
		code = status
	case http.StatusInternalServerError:
		code = http.StatusInternalServerError
	}
	told := brig.AsError(err)
	data := any(nil)
	if len(told.Fields) > 1 {
		data = map[string]any{"details": told.Fields}
	}
	_ = door.WriteJSON(w, status, envelope{code, told.Message, data})
}

func (s *shipped) routes() []route {
	return []route{
		{http.MethodGet, "/sandbox/providers", s.providers},
		{http.MethodGet, "/sandbox/providers/{id}/schema", s.schema},
		{http.MethodGet, "/sandbox/config", s.config},
		{http.MethodPost, "/sandbox/config", s.setConfig},
		{http.MethodPost, "/sandbox/test", s.test},
	}
}

func (s *shipped) providers(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	type provider struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Tags        []string `json:"tags"`
	}
	out := []provider{}
	for _, p := range list {
		out = append(out, provider{p.ID, p.Title, p.Doc, append([]string{}, p.Tags...)})
	}
	return out, nil
}

// schema is a map of fields by their names.
func (s *shipped) schema(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	p, err := find(list, id(r))
	if err != nil {
		return nil, err
	}
	return fieldMap(p), nil
}

func fieldMap(p *brig.ProviderInfo) map[string]brig.ConfigField {
	out := map[string]brig.ConfigField{}
	for _, f := range p.Fields {
		out[f.Name] = f
	}
	return out
}

// change is what a request says of a provider.
type change struct {
	ProviderType string `json:"provider_type"`
	Config       object `json:"config"`
	SetActive    *bool  `json:"set_active"`
	Test         bool   `json:"test_connection"`
}

func (c change) noun() brig.ProviderConfig {
	return brig.ProviderConfig{ID: c.ProviderType, Config: c.Config.raw(), Activate: c.SetActive == nil || *c.SetActive, Test: c.Test}
}

func (s *shipped) config(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	p := active(list)
	if p == nil {
		return nil, brig.Errorf(brig.NotInitialized, "Sandbox provider type not configured").WithHint("configure a provider")
	}
	return configOf(p)
}

func (s *shipped) setConfig(r *http.Request, body []byte) (any, error) {
	var in change
	if err := read(body, &in); err != nil {
		return nil, err
	}
	if in.ProviderType == "" {
		return nil, brig.Errorf(brig.InvalidConfig, "Required field 'provider_type' is missing")
	}
	p, err := s.svc.ConfigureProvider(r.Context(), in.noun())
	if err != nil {
		return nil, err
	}
	return configOf(p)
}

func configOf(p *brig.ProviderInfo) (any, error) {
	config, err := defaults(p)
	return map[string]any{"provider_type": p.ID, "config": config}, err
}

func (s *shipped) test(r *http.Request, body []byte) (any, error) {
	var in change
	if err := read(body, &in); err != nil {
		return nil, err
	}
	t, err := s.svc.TestProvider(r.Context(), in.noun())
	if err != nil {
		return nil, err
	}
	message := t.Message
	if t.Hint != "" {
		message = fmt.Sprintf("%s (%s)", message, t.Hint)
	}
	return map[string]any{
		"success": t.OK, "message": message, "latency_ms": t.Latency.Milliseconds(),
		"details": map[string]any{
			"exit_code": t.ExitCode, "execution_time": t.Latency.Seconds(), "stdout": t.Stdout, "stderr": t.Stderr,
		},
	}, nil
}
