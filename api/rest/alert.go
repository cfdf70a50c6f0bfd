package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) alerts(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Alerts(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, wire.FromAlerts(list))
}
