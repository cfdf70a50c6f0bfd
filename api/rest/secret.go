package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) putSecret(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.SecretRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	c, err := in.Noun(param(r, "name"))
	if err != nil {
		return err
	}
	out, err := a.Service.PutSecret(r.Context(), c)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromSecret(out))
}

func (a *api) secrets(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Secrets(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromSecrets(list))
}

func fromSecrets(list []*brig.Secret) wire.Secrets {
	out := wire.Secrets{Secrets: []wire.Secret{}}
	for _, s := range list {
		out.Secrets = append(out.Secrets, wire.FromSecret(s))
	}
	return out
}

func (a *api) removeSecret(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveSecret(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) rotateKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	n, err := a.Service.RotateKey(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.Resealed{Secrets: n})
}
