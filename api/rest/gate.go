package rest

import (
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// gate contains the checks for a request that happen before its body is read.
type gate struct {
	op   brig.Op
	most int64 // largest body in bytes, httpapi.SmallBody if zero
}

// gates maps the id of every route with a body to its gate. Streamed bodies of
// archives and files have their own limits.
var gates = map[string]gate{
	"run":               {brig.OpRun, httpapi.MaxBody},
	"create-sandbox":    {op: brig.OpCreate},
	"exec":              {brig.OpExec, httpapi.MaxBody},
	"stop-sandbox":      {op: brig.OpStop},
	"kill-sandbox":      {op: brig.OpKill},
	"extend-sandbox":    {op: brig.OpExtend},
	"pause-sandbox":     {op: brig.OpPause},
	"resume-sandbox":    {op: brig.OpResume},
	"fork-sandbox":      {op: brig.OpFork},
	"set-egress":        {op: brig.OpSetEgress},
	"attest-sandbox":    {op: brig.OpAttest},
	"create-context":    {op: brig.OpCreateContext},
	"run-code":          {brig.OpRunCode, httpapi.MaxBody},
	"write-file":        {op: brig.OpWrite},
	"make-directory":    {op: brig.OpMakeDir},
	"move-file":         {op: brig.OpMove},
	"compose-file":      {op: brig.OpCompose},
	"start-process":     {op: brig.OpStart},
	"process-input":     {brig.OpInput, httpapi.MaxBody},
	"signal-process":    {op: brig.OpSignal},
	"resize-terminal":   {op: brig.OpResize},
	"import-image":      {op: brig.OpImportImage},
	"build-image":       {op: brig.OpBuildImage},
	"pull-image":        {op: brig.OpPullImage},
	"tag-image":         {op: brig.OpTagImage},
	"put-secret":        {op: brig.OpPutSecret},
	"create-workspace":  {op: brig.OpCreateWorkspace},
	"restore-workspace": {op: brig.OpRestoreWorkspace},
	"create-key":        {op: brig.OpCreateKey},
	"create-grant":      {op: brig.OpCreateGrant},
	"create-tenant":     {op: brig.OpCreateTenant},
	"update-tenant":     {op: brig.OpUpdateTenant},

	"configure-provider": {op: brig.OpConfigureProvider},
	"test-provider":      {op: brig.OpTestProvider},
	"set-routing":        {op: brig.OpSetRouting},
}

// authorize authorizes r for the route and sets the size limit of its body.
func (a *api) authorize(rt route, r *http.Request) (*http.Request, error) {
	g, ok := gates[rt.base()]
	if !ok {
		return r, nil // the route does not read the body
	}
	name := ""
	if g.op.Sandbox {
		name = param(r, "name")
	}
	if err := httpapi.Check(r, a.Service, name, g.op); err != nil {
		return r, err
	}
	if g.most > 0 {
		r = httpapi.WithMaxBody(r, g.most)
	}
	return r, nil
}
