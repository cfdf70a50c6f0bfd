package main

import (
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/internal/version"
)

// versionLine returns the output of brig --version.
func versionLine() string { return "brig " + version.String() }

// infoCommands are the commands that describe this program.
type infoCommands struct{ *cli }

func (c infoCommands) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of Brig, gVisor and Go",
		Long: `Print the version of Brig, of the gVisor that is linked in, and of the Go toolchain.
With --url, the command still describes this program and not the server; the
server's version is at /v1/version.`,
		Example: `  brig version
  brig --version
  brig version --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.asJSON {
				return c.printJSON(map[string]string{"brig": version.String(), "gvisor": version.GVisor(), "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(c.stdout, "%s\ngvisor %s\n%s %s/%s\n", versionLine(), version.GVisor(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// openapi prints the document that a server serves at /openapi.json.
func (c infoCommands) openapi() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI document of the REST API",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h := rest.New(rest.Options{Version: "dev", LimitRange: brig.DefaultLimitRange()})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
			_, err := io.Copy(c.stdout, w.Result().Body)
			return err
		},
	}
}
