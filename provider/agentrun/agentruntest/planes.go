package agentruntest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The control plane.

func (d *Double) listTemplates(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(d.templates)) {
		items = append(items, d.templates[name].fields)
	}
	c.respondOK(map[string]any{"items": items, "pageNumber": 1, "pageSize": len(items), "total": len(items)})
}

func (d *Double) createTemplate(c *call) {
	v, ok := c.in("templateName", "templateType")
	if !ok {
		return
	}
	if t := v["templateType"]; !slices.Contains([]any{"CodeInterpreter", "Browser", "AllInOne", "CustomImage"}, t) {
		c.refuse(http.StatusBadRequest, "InvalidParameter", fmt.Sprintf("templateType %v", t))
		return
	}
	name, _ := v["templateName"].(string) // checked by in
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.templates[name] != nil {
		c.refuse(http.StatusConflict, "TemplateAlreadyExists", name)
		return
	}
	v["templateId"], v["status"] = "tpl-"+name, "CREATING"
	if d.o.Slow == 0 {
		v["status"] = "READY"
	}
	d.templates[name] = &resource{fields: v}
	c.respondOK(v)
}

func (d *Double) getTemplate(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.templates[c.r.PathValue("name")]
	if t == nil {
		c.refuse(http.StatusNotFound, "TemplateNotFound", c.r.PathValue("name"))
		return
	}
	if t.polls++; t.polls >= d.o.Slow {
		t.fields["status"] = "READY"
	}
	c.respondOK(t.fields)
}

func (d *Double) deleteTemplate(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := c.r.PathValue("name")
	if d.templates[name] == nil {
		c.refuse(http.StatusNotFound, "TemplateNotFound", name)
		return
	}
	delete(d.templates, name)
	c.respondOK(map[string]any{"templateName": name})
}

// The data plane.

func (d *Double) create(c *call) {
	v, ok := c.in("templateName")
	if !ok {
		return
	}
	name, _ := v["templateName"].(string) // checked by in
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.templates[name]; t == nil || t.fields["status"] != "READY" {
		c.refuse(http.StatusNotFound, "TemplateNotFound", name)
		return
	}
	d.made++
	id := "sbx-" + strconv.Itoa(d.made)
	m, err := d.o.Machine(id)
	if err != nil {
		c.refuse(http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	s := &resource{machine: m, contexts: map[string]string{}, fields: map[string]any{
		"sandboxId": id, "templateName": name, "status": "CREATING", "createdAt": time.Now().UTC().Format(time.RFC3339),
		"sandboxIdleTimeoutSeconds": v["sandboxIdleTimeoutSeconds"],
	}}
	d.sandboxes[id] = s
	c.respondOK(s.fields)
}

// sandbox returns the sandbox of a request.
func (d *Double) sandbox(c *call) *resource {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sandboxes[c.r.PathValue("id")]
	if s == nil {
		c.refuse(http.StatusNotFound, "SandboxNotFound", c.r.PathValue("id"))
	}
	return s
}

func (d *Double) get(c *call) {
	if s := d.sandbox(c); s != nil {
		c.respondOK(s.fields)
	}
}

func (d *Double) delete(c *call) {
	s := d.sandbox(c)
	if s == nil {
		return
	}
	d.mu.Lock()
	delete(d.sandboxes, c.r.PathValue("id"))
	d.mu.Unlock()
	if err := s.machine.Close(); err != nil {
		c.refuse(http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	c.respondOK(s.fields)
}

func (d *Double) health(c *call) {
	s := d.sandbox(c)
	if s == nil {
		return
	}
	d.mu.Lock()
	s.polls++
	ready := s.polls > d.o.Slow
	if ready {
		s.fields["status"] = "READY"
	}
	d.mu.Unlock()
	if !ready {
		c.respond(http.StatusServiceUnavailable, map[string]any{"code": "SandboxNotReady", "message": "it is being made", "requestId": requestID})
		return
	}
	c.respond(http.StatusOK, map[string]string{"status": "ok"})
}

// ready returns the sandbox of a request if it is ready.
func (d *Double) ready(c *call) *resource {
	s := d.sandbox(c)
	if s == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.fields["status"] != "READY" {
		c.refuse(http.StatusConflict, "SandboxNotReady", "it is being made")
		return nil
	}
	return s
}

func (d *Double) createContext(c *call) {
	v, ok := c.in("cwd", "language")
	if !ok {
		return
	}
	s := d.ready(c)
	if s == nil {
		return
	}
	language, _ := v["language"].(string) // checked by in
	if language != "python" && language != "javascript" {
		c.refuse(http.StatusBadRequest, "InvalidParameter", "no language "+language)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := "ctx-" + strconv.Itoa(len(s.contexts)+1)
	s.contexts[id] = language
	c.respond(http.StatusOK, map[string]any{"id": id, "cwd": v["cwd"], "language": language})
}

func (d *Double) execute(c *call) {
	v, ok := c.in("code")
	if !ok {
		return
	}
	s := d.ready(c)
	if s == nil {
		return
	}
	id, _ := v["contextId"].(string)
	d.mu.Lock()
	language, known := s.contexts[id]
	d.mu.Unlock()
	seconds, _ := v["timeout"].(float64)
	if !known || seconds < 1 || seconds > 30 {
		c.refuse(http.StatusBadRequest, "InvalidParameter", "it has no such context, or a timeout beyond 30 s")
		return
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	code, _ := v["code"].(string) // checked by in
	stdout, stderr, err := s.machine.Execute(ctx, language, code)
	results := []any{}
	event := func(kind, text string) {
		// Like the service, send a kernel's streams in pieces and without the
		// final line feed.
		if text = strings.TrimSuffix(text, "\n"); text != "" {
			results = append(results, map[string]any{"type": kind, "text": text})
		}
	}
	// Send the output in pieces.
	half := len(stdout) / 2
	event("stdout", stdout[:half])
	event("stderr", stderr)
	event("stdout", stdout[half:])
	status := "ok"
	switch {
	case ctx.Err() != nil:
		event("error", "execution timed out")
		status = "error"
	case err != nil:
		event("error", err.Error())
		status = "error"
	}
	results = append(results, map[string]any{"type": "endOfExecution", "text": "", "status": status})
	c.respond(http.StatusOK, map[string]any{"results": results, "contextId": id})
}

func (d *Double) download(c *call) {
	s := d.ready(c)
	if s == nil {
		return
	}
	b, err := s.machine.Read(c.r.URL.Query().Get("path"))
	if err != nil {
		c.refuse(http.StatusNotFound, "FileNotFound", err.Error())
		return
	}
	c.w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = c.w.Write(b) // a client that disconnected does not read it
}
