package admin

import (
	"fmt"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// shipped is the dialect that RAGFlow ships. Every response is {code, message,
// data}, and most errors have the status 400.
type shipped struct{ svc brig.ProviderService }

// envelope is the format of every response of the shipped dialect.
type envelope struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

func (s *shipped) writeResponse(w http.ResponseWriter, v any) {
	_ = httpapi.WriteJSON(w, http.StatusOK, envelope{0, "success", v}) // fails if the client has disconnected
}

func (s *shipped) writeError(w http.ResponseWriter, err error) {
	code, status := http.StatusBadRequest, http.StatusBadRequest
	switch httpapi.Status(brig.KindOf(err)) {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		// These errors keep their HTTP status, which is also the code.
		status = httpapi.Status(brig.KindOf(err))
		code = status
	case http.StatusInternalServerError:
		code = http.StatusInternalServerError
	}
	apiErr := brig.AsError(err)
	data := any(nil)
	if len(apiErr.Fields) > 1 {
		data = map[string]any{"details": apiErr.Fields}
	}
	_ = httpapi.WriteJSON(w, status, envelope{code, apiErr.Message, data})
}

func (s *shipped) routes() []route {
	return []route{
		{http.MethodGet, "/sandbox/providers", brig.OpProviders, s.listProviders},
		{http.MethodGet, "/sandbox/providers/{id}/schema", brig.OpProviders, s.getSchema},
		{http.MethodGet, "/sandbox/config", brig.OpProviders, s.getConfig},
		{http.MethodPost, "/sandbox/config", brig.OpConfigureProvider, s.setConfig},
		{http.MethodPost, "/sandbox/test", brig.OpTestProvider, s.testConfig},
	}
}

func (s *shipped) listProviders(r *http.Request, _ []byte) (any, error) {
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

// getSchema returns a map of the provider's fields by name.
func (s *shipped) getSchema(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	p, err := find(list, providerID(r))
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

// change is the body of a request to change or test a provider.
type change struct {
	ProviderType string `json:"provider_type"`
	Config       object `json:"config"`
	SetActive    *bool  `json:"set_active"`
	Test         bool   `json:"test_connection"`
}

func (c change) domain() brig.ProviderConfig {
	return brig.ProviderConfig{ID: c.ProviderType, Config: c.Config.raw(), Activate: c.SetActive == nil || *c.SetActive, Test: c.Test}
}

func (s *shipped) getConfig(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	p := findActive(list)
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
	p, err := s.svc.ConfigureProvider(r.Context(), in.domain())
	if err != nil {
		return nil, err
	}
	return configOf(p)
}

func configOf(p *brig.ProviderInfo) (any, error) {
	config, err := defaults(p)
	return map[string]any{"provider_type": p.ID, "config": config}, err
}

func (s *shipped) testConfig(r *http.Request, body []byte) (any, error) {
	var in change
	if err := read(body, &in); err != nil {
		return nil, err
	}
	t, err := s.svc.TestProvider(r.Context(), in.domain())
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
