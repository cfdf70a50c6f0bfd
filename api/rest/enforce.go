package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) capabilities(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	c, err := a.Service.Capabilities(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromCapabilities(c))
}

func (a *api) attest(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := door.ReadJSON(w, r, &wire.AttestRequest{}, true); err != nil {
		return err
	}
	s, err := a.Service.Attest(r.Context(), param(r, "name"))
	return answerSandbox(w, s, err)
}
