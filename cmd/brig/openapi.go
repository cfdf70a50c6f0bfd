package main

import (
	"io"
	"net/http/httptest"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
)

// openapiCommand prints what a server answers at /openapi.json.
func (c *cli) openapiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the REST API's description, as /openapi.json gives it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h := rest.New(rest.Options{Version: "dev", Bounds: brig.DefaultBounds()})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
			_, err := io.Copy(c.stdout, w.Result().Body)
			return err
		},
	}
}
