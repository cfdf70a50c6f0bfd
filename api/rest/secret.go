package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

func (a *serverAPI) putSecret(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *serverAPI) secrets(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *serverAPI) removeSecret(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveSecret(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *serverAPI) rotateKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	n, err := a.Service.RotateKey(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.Resealed{Secrets: n})
}
