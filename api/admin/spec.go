package admin

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// object is a JSON object that is passed on unchanged.
type object json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(b []byte) error {
	*o = bytes.Clone(b)
	return nil
}

// raw returns the JSON of o, or nil if o is null.
func (o object) raw() json.RawMessage {
	if string(o) == "null" {
		return nil
	}
	return json.RawMessage(o)
}

// spec implements the routes of the specification. Responses are {data} or {message}.
// Errors are {error, details} with the matching status.
type spec struct{ svc brig.ProviderService }

// message is a response that has the form {message}.
type message string

func (s *spec) writeResponse(w http.ResponseWriter, v any) {
	if m, ok := v.(message); ok {
		_ = httpapi.WriteJSON(w, http.StatusOK, map[string]string{"message": string(m)}) // fails if the client has disconnected
		return
	}
	if _, ok := v.(testAnswer); ok {
		_ = httpapi.WriteJSON(w, http.StatusOK, v)
		return
	}
	_ = httpapi.WriteJSON(w, http.StatusOK, map[string]any{"data": v})
}

// Messages of errors in the specification.
const (
	unknownProvider  = "Unknown provider"
	invalidConfig    = "Invalid config"
	connectionFailed = "Connection failed"
	notConfigured    = "Provider not configured"
)

func (s *spec) writeError(w http.ResponseWriter, err error) {
	apiErr := brig.AsError(err)
	status := httpapi.Status(apiErr.Kind)
	short, details := apiErr.Message, []any{}
	switch apiErr.Kind {
	case brig.InvalidConfig:
		status, short = http.StatusBadRequest, invalidConfig
		switch {
		case apiErr.Field == "provider_type":
			short = unknownProvider
		case apiErr.Message == notConfigured:
			short = notConfigured
		}
		for _, f := range apiErr.Fields {
			details = append(details, f)
		}
		if len(details) == 0 {
			details = append(details, apiErr.Message)
		}
	case brig.ConnectionFailed:
		status, short, details = http.StatusBadRequest, connectionFailed, append(details, apiErr.Message)
	default:
		if apiErr.Hint != "" {
			details = append(details, apiErr.Hint)
		}
	}
	_ = httpapi.WriteJSON(w, status, map[string]any{"error": short, "details": details, "code": apiErr.Kind.Code()}) // fails if the client has disconnected
}

func (s *spec) routes() []route {
	return []route{
		{http.MethodGet, "/sandbox/providers", brig.OpProviders, s.listProviders},
		{http.MethodGet, "/sandbox/config", brig.OpProviders, s.getConfig},
		{http.MethodPost, "/sandbox/config", brig.OpConfigureProvider, s.setConfig},
		{http.MethodPost, "/sandbox/test", brig.OpTestProvider, s.testConfig},
		{http.MethodPut, "/sandbox/active", brig.OpActivateProvider, s.activate},
	}
}

func (s *spec) listProviders(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	type provider struct {
		ID          string                      `json:"id"`
		Name        string                      `json:"name"`
		Description string                      `json:"description"`
		Icon        string                      `json:"icon"`
		Tags        []string                    `json:"tags"`
		Languages   []brig.Language             `json:"supported_languages"`
		Schema      map[string]brig.ConfigField `json:"config_schema"`
	}
	out := []provider{}
	for i := range list {
		p := &list[i]
		out = append(out, provider{p.ID, p.Title, p.Doc, p.Driver, append([]string{}, p.Tags...), append([]brig.Language{}, p.Languages...), fieldMap(p)})
	}
	return out, nil
}

// getConfig returns the configuration of every provider and the id of the active
// one.
func (s *spec) getConfig(r *http.Request, _ []byte) (any, error) {
	list, err := s.svc.Providers(r.Context())
	if err != nil {
		return nil, err
	}
	out := map[string]any{"active": ""}
	for i := range list {
		p := &list[i]
		if p.Active {
			out["active"] = p.ID
		}
		if out[p.ID], err = defaults(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *spec) setConfig(r *http.Request, body []byte) (any, error) {
	var in change
	if err := read(body, &in); err != nil {
		return nil, err
	}
	if _, err := s.svc.ConfigureProvider(r.Context(), in.domain()); err != nil {
		return nil, err
	}
	return message("Configuration saved"), nil
}

// testAnswer is the response of a test, which is not wrapped in {data}.
type testAnswer struct {
	Success   bool   `json:"success"`
	Message   string `json:"message"`
	LatencyMS int64  `json:"latency_ms"`
}

func (s *spec) testConfig(r *http.Request, body []byte) (any, error) {
	var in change
	if err := read(body, &in); err != nil {
		return nil, err
	}
	t, err := s.svc.TestProvider(r.Context(), in.domain())
	if err != nil {
		return nil, err
	}
	return testAnswer{t.OK, t.Message, t.Latency.Milliseconds()}, nil
}

func (s *spec) activate(r *http.Request, body []byte) (any, error) {
	var in struct {
		Provider string `json:"provider"`
	}
	if err := read(body, &in); err != nil {
		return nil, err
	}
	if err := s.svc.ActivateProvider(r.Context(), in.Provider); err != nil {
		return nil, err
	}
	return message("Active provider updated"), nil
}
