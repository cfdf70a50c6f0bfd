package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) templates(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Templates(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromTemplates(list))
}

func fromTemplates(list []brig.Template) wire.Templates {
	out := wire.Templates{Templates: []wire.Template{}}
	for _, t := range list {
		x := wire.FromTemplate(t)
		x.Limits = fromLimits(t.Limits)
		out.Templates = append(out.Templates, x)
	}
	return out
}
