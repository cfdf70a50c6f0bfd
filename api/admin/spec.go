package admin

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// object is a JSON object that is passed on as it is.
type object json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(b []byte) error {
	*o = bytes.Clone(b)
	return nil
}

// raw is nil for what was left out.
func (o object) raw() json.RawMessage {
	if string(o) == "null" {
		return nil
	}
	return json.RawMessage(o)
}

// spec is the dialect of the specification: answers are {data} or {message},
// and errors {error, details} with the status that says what they are.
type spec struct{ svc brig.Service }

// message is an answer that is no data.
type message string

func (s *spec) answer(w http.ResponseWriter, v any) {
	if m, ok := v.(message); ok {
		_ = door.WriteJSON(w, http.StatusOK, map[string]string{"message": string(m)}) // the client may have gone
		return
	}
	if _, ok := v.(testAnswer); ok {
		_ = door.WriteJSON(w, http.StatusOK, v)
		return
	}
	_ = door.WriteJSON(w, http.StatusOK, map[string]any{"data": v})
}

// words of the specification for errors.
const (
	unknownProvider  = "Unknown provider"
	invalidConfig    = "Invalid config"
	connectionFailed = "Connection failed"
	notConfigured    = "Provider not configured"
)

func (s *spec) fail(w http.ResponseWriter, err error) {
	told := brig.AsError(err)
	status := door.Status(told.Kind)
	short, details := told.Message, []any{}
	switch told.Kind {
	case brig.InvalidConfig:
		status, short = http.StatusBadRequest, invalidConfig
		switch {
		case told.Field == "provider_type":
			short = unknownProvider
		case told.Message == notConfigured:
			short = notConfigured
		}
		for _, f := range told.Fields {
			details = append(details, f)
		}
		if len(details) == 0 {
			details = append(details, told.Message)
		}
	case brig.ConnectionFailed:
		status, short, details = http.StatusBadRequest, connectionFailed, append(details, told.Message)
	default:
		if told.Hint != "" {
			details = append(details, told.Hint)
		}
	}
	_ = door.WriteJSON(w, status, map[string]any{"error": short, "details": details, "code": told.Kind.Code()}) // the client may have gone
}

func (s *spec) routes() []route {
	return []route{
		{http.MethodGet, "/sandbox/providers", s.providers},
		{http.MethodGet, "/sandbox/config", s.config},
		{http.MethodPost, "/sandbox/config", s.setConfig},
		{http.MethodPost, "/sandbox/test", s.test},
		{http.MethodPut, "/sandbox/active", s.activate},
	}
}

func (s *spec) providers(r *http.Request, _ []byte) (any, error) {
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

// config is that of every provider, and which is active.
func (s *spec) config(r *http.Request, _ []byte) (any, error) {
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
	if _, err := s.svc.ConfigureProvider(r.Context(), in.noun()); err != nil {
		return nil, err
	}
	return message("Configuration saved"), nil
}

// testAnswer is the answer of a test, which is in no envelope.
type testAnswer struct {
	Success   bool   `json:"success"`
	Message   string `json:"message"`
	LatencyMS int64  `json:"latency_ms"`
}

func (s *spec) test(r *http.Request, body []byte) (any, error) {
	var in change
	if err := read(body, &in); err != nil {
		return nil, err
	}
	t, err := s.svc.TestProvider(r.Context(), in.noun())
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
