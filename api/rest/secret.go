package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// secretAPI has the handlers for secrets.
type secretAPI struct{ *base }

// routes returns the routes of secrets.
func (a secretAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	return []route{
		{id: "put-secret", method: put, pattern: "/v1/secrets/{name}", tag: "secrets", summary: "Create or change a secret",
			handle: a.putSecret, op: brig.OpPutSecret, in: v1.SecretRequest{}, out: v1.Secret{}, names: true},
		{id: "list-secrets", method: get, pattern: "/v1/secrets", tag: "secrets", summary: "List secrets, without their values",
			handle: a.secrets, out: v1.Secrets{}},
		{id: "remove-secret", method: del, pattern: "/v1/secrets/{name}", tag: "secrets", summary: "Remove a secret",
			handle: a.removeSecret, status: http.StatusNoContent},
		{id: "rotate-key", method: post, pattern: "/v1/secrets/rotate_key", tag: "secrets", summary: "Rotate the encryption key of secrets",
			handle: a.rotateKey, out: v1.Resealed{}},
	}
}

func (a secretAPI) putSecret(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.SecretRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	c, err := in.Domain(param(r, "name"))
	if err != nil {
		return err
	}
	out, err := a.Service.PutSecret(r.Context(), c)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromSecret(out))
}

func (a secretAPI) secrets(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Secrets(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, fromSecrets(list))
}

func fromSecrets(list []*brig.Secret) v1.Secrets {
	out := v1.Secrets{Secrets: []v1.Secret{}}
	for _, s := range list {
		out.Secrets = append(out.Secrets, v1.FromSecret(s))
	}
	return out
}

func (a secretAPI) removeSecret(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveSecret(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a secretAPI) rotateKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	n, err := a.Service.RotateKey(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.Resealed{Secrets: n})
}
