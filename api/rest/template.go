package rest

import (
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// templateAPI has the handlers for the templates that tenants build.
type templateAPI struct{ *base }

// routes returns the routes of built templates.
func (a templateAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	out := []route{
		{id: "get-template", method: get, pattern: "/v1/templates/{name}", tag: "templates", summary: "Get a built template by name or ID",
			large: true, handle: a.get, out: v1.TemplateDetails{}},
		{id: "remove-template", method: del, pattern: "/v1/templates/{name}", tag: "templates", summary: "Remove a built template with its builds",
			handle: a.remove, status: http.StatusNoContent},
		{id: "tag-template", method: post, pattern: "/v1/templates/{name}/tags", tag: "templates", summary: "Give a build of a template another tag",
			handle: a.addTag, op: brig.OpTagTemplate, in: v1.TagTemplateRequest{}, status: http.StatusNoContent},
		{id: "untag-template", method: del, pattern: "/v1/templates/{name}/tags/{tag}", tag: "templates", summary: "Remove a tag of a template",
			handle: a.removeTag, status: http.StatusNoContent},
		{id: "build-template", method: post, pattern: "/v1/templates/{name}/builds", tag: "templates", summary: "Start a build of a template",
			notes:  "The name can have a tag, as web:v1. The template is created if it does not exist.",
			handle: a.build, op: brig.OpRequestBuild, maxBody: maxBuildBody, in: v1.TemplateBuildRequest{}, out: v1.TemplateBuild{}, status: http.StatusAccepted},
		{id: "get-template-build", method: get, pattern: "/v1/templates/{name}/builds/{id}", tag: "templates", summary: "Get a build of a template",
			handle: a.getBuild, out: v1.TemplateBuild{}},
		{id: "template-build-log", method: get, pattern: "/v1/templates/{name}/builds/{id}/log", tag: "templates", summary: "Get the log of a build",
			notes:  "With an Accept header for it, the answer is a stream of events, with the lines as they come. It ends with the build. A client that stops reading does not end the build.",
			handle: a.log, out: v1.TemplateBuildLog{}, events: []string{v1.EventLine, v1.EventPing}, query: []parameter{
				{name: "offset", doc: "number of lines to leave out: next_offset of the previous answer; default 0", number: true, max: 1<<31 - 1, example: 0},
			}},
		{id: "cancel-template-build", method: post, pattern: "/v1/templates/{name}/builds/{id}/cancel", tag: "templates", summary: "End a running build, which then has failed",
			handle: a.cancel, status: http.StatusNoContent},
		{id: "find-template-files", method: get, pattern: "/v1/template-files/{digest}", tag: "templates", summary: "Check whether files for builds were uploaded",
			handle: a.findFiles, out: v1.TemplateFiles{}},
		{id: "put-template-files", method: put, pattern: "/v1/template-files/{digest}", tag: "templates", summary: "Upload files for builds",
			notes:  "The body is a tar archive, plain or compressed with gzip, and needs the header Content-Length. The server removes the least recently used archives if a tenant has too many.",
			handle: a.putFiles, op: brig.OpUploadFiles, octets: true, status: http.StatusNoContent},
	}
	for i := range out {
		out[i].handle = a.ifBuilds(out[i].handle)
	}
	return out
}

// maxBuildBody is the maximum size of a request to build a template. The builder has lower bounds for
// the parts of a request.
const maxBuildBody = 4 << 20

// ifBuilds returns a handler that calls h if the server builds templates.
func (a templateAPI) ifBuilds(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, q url.Values) error {
		if a.Builds == nil {
			return brig.Errorf(brig.Unimplemented, "this server builds no templates")
		}
		return h(w, r, q)
	}
}

func (a templateAPI) get(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	t, err := a.Builds.GetTemplate(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromTemplateDetails(t))
}

func (a templateAPI) remove(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Builds.RemoveTemplate(r.Context(), param(r, "name")))
}

func (a templateAPI) addTag(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.TagTemplateRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return writeNoContent(w, a.Builds.TagTemplate(r.Context(), param(r, "name"), in.From, in.Tag))
}

func (a templateAPI) removeTag(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Builds.UntagTemplate(r.Context(), param(r, "name"), param(r, "tag")))
}

func (a templateAPI) build(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.TemplateBuildRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	b, err := a.Builds.BuildTemplate(r.Context(), in.Domain(param(r, "name")))
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/templates/"+b.Template+"/builds/"+b.ID)
	return httpapi.WriteJSON(w, http.StatusAccepted, v1.FromTemplateBuild(b))
}

func (a templateAPI) getBuild(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	b, err := a.Builds.GetTemplateBuild(r.Context(), param(r, "name"), param(r, "id"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromTemplateBuild(b))
}

func (a templateAPI) log(w http.ResponseWriter, r *http.Request, q url.Values) error {
	offset, err := intParameter(q, "offset")
	if err != nil {
		return err
	}
	if ndjson, sse := acceptedFormat(r); ndjson || sse {
		return a.streamLog(w, r, offset)
	}
	done, err := httpapi.LeaseOf(r.Context()).WaitForTurn(r.Context()) // a stream would keep its turn
	if err != nil {
		return err
	}
	defer done()
	b, err := a.Builds.GetTemplateBuild(r.Context(), param(r, "name"), param(r, "id"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromBuildLog(b, offset))
}

// streamLog sends the lines of a log as events until the build has ended.
func (a templateAPI) streamLog(w http.ResponseWriter, r *http.Request, offset int) error {
	s, ctx, stop := newStream(w, r)
	defer stop()
	// The first line may take long, so the stream begins as soon as the caller may read it.
	if _, err := a.Builds.GetTemplateBuild(ctx, param(r, "name"), param(r, "id")); err != nil {
		return err
	}
	if err := s.send(v1.EventPing, struct{}{}); err != nil {
		return s.end(nil, err)
	}
	b, err := a.Builds.FollowTemplateBuild(ctx, param(r, "name"), param(r, "id"), offset, func(l brig.BuildLine) error {
		return s.send(v1.EventLine, v1.FromBuildLine(l))
	})
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(v1.FromBuildLog(b, max(offset, len(b.Log))), nil)
}

func (a templateAPI) cancel(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return writeNoContent(w, a.Builds.CancelTemplateBuild(r.Context(), param(r, "name"), param(r, "id")))
}

func (a templateAPI) findFiles(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	has, err := a.Builds.HasTemplateFiles(r.Context(), param(r, "digest"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.TemplateFiles{Present: has})
}

func (a templateAPI) putFiles(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := httpapi.CheckMediaType(r, v1.Octets); err != nil {
		return err
	}
	httpapi.AllowLongBody(r)
	return writeNoContent(w, a.Builds.PutTemplateFiles(r.Context(), param(r, "digest"), r.ContentLength, archive{r.Body}))
}
