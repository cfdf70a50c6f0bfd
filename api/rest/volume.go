package rest

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// volumeAPI has the handlers for volumes.
type volumeAPI struct{ *base }

// routes returns the routes of volumes.
func (a volumeAPI) routes() []route {
	get, post, put, patch, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	path := parameter{name: "path", doc: "path in the volume", required: true, nonempty: true, maxLength: maxPath, pattern: pathPattern, example: "/a.txt"}
	id := func(name, doc string) parameter {
		return parameter{name: name, doc: doc, number: true, max: 1<<32 - 2, example: brig.VolumeOwner}
	}
	return []route{
		{id: "create-volume", method: post, pattern: "/v1/volumes", tag: "volumes", summary: "Create an empty volume",
			handle: a.create, op: brig.OpCreateVolume, in: v1.VolumeRequest{}, out: v1.Volume{}, status: http.StatusCreated},
		{id: "list-volumes", method: get, pattern: "/v1/volumes", tag: "volumes", summary: "List volumes, the oldest first",
			large: true, handle: a.list, out: v1.Volumes{}},
		{id: "get-volume", method: get, pattern: "/v1/volumes/{name}", tag: "volumes", summary: "Get a volume",
			handle: a.get, out: v1.Volume{}},
		{id: "remove-volume", method: del, pattern: "/v1/volumes/{name}", tag: "volumes", summary: "Remove a volume with its files",
			notes:  "Sandboxes that have mounted it keep it until they end.",
			handle: a.remove, status: http.StatusNoContent},
		{id: "list-volume-files", method: get, pattern: "/v1/volumes/{name}/files", tag: "volumes", summary: "List a directory of a volume",
			large: true, handle: a.listFiles, out: v1.VolumeEntries{}, query: []parameter{path,
				{name: "depth", doc: "number of levels; default 1", number: true, min: 1, max: 256, example: 1}}},
		{id: "stat-volume-file", method: get, pattern: "/v1/volumes/{name}/files/stat", tag: "volumes", summary: "Get a path's properties",
			handle: a.stat, out: v1.VolumeEntry{}, query: []parameter{path}},
		{id: "read-volume-file", method: get, pattern: "/v1/volumes/{name}/files/content", tag: "volumes", summary: "Download a file of a volume",
			notes:  "If a download fails midway, the connection breaks.",
			handle: a.download, isFile: true, query: []parameter{path}},
		{id: "write-volume-file", method: put, pattern: "/v1/volumes/{name}/files/content", tag: "volumes", summary: "Upload a file to a volume",
			handle: a.upload, op: brig.OpWriteVolume, octets: true, out: v1.VolumeEntry{}, query: []parameter{path,
				{name: "force", doc: "true to create missing directories and to replace an existing file", boolean: true},
				{name: "mode", doc: "permission bits in octal digits; default 0644 for a new file", pattern: "^[0-7]{1,4}$", example: "0644"},
				id("uid", "ID of the owner; default 1000 for a new file"), id("gid", "ID of the group; default 1000 for a new file")}},
		{id: "make-volume-directory", method: post, pattern: "/v1/volumes/{name}/files/mkdir", tag: "volumes", summary: "Create a directory in a volume",
			handle: a.makeDir, op: brig.OpMakeVolumeDir, in: v1.VolumeDirRequest{}, out: v1.VolumeEntry{}, status: http.StatusCreated},
		{id: "set-volume-attributes", method: patch, pattern: "/v1/volumes/{name}/files", tag: "volumes", summary: "Change the owner or the mode of a path",
			handle: a.setAttributes, op: brig.OpSetVolumeAttributes, in: v1.VolumeAttributesRequest{}, out: v1.VolumeEntry{}},
		{id: "remove-volume-file", method: del, pattern: "/v1/volumes/{name}/files", tag: "volumes", summary: "Remove a path and what is below it",
			handle: a.removeFile, status: http.StatusNoContent, query: []parameter{path}},
	}
}

func (a volumeAPI) files(r *http.Request) brig.VolumeFiles {
	return a.Service.VolumeFiles(param(r, "name"))
}

func (a volumeAPI) create(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.VolumeRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := a.Service.CreateVolume(r.Context(), in.Name, int64(in.Size))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromVolume(out))
}

func (a volumeAPI) list(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Volumes(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromVolumes(list))
}

func (a volumeAPI) get(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	out, err := a.Service.GetVolume(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromVolume(out))
}

func (a volumeAPI) remove(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveVolume(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a volumeAPI) listFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
	depth, err := intParameter(q, "depth")
	if err != nil {
		return err
	}
	list, err := a.files(r).List(r.Context(), q.Get("path"), max(depth, 1))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromVolumeEntries(list))
}

func writeVolumeEntry(w http.ResponseWriter, status int, e *brig.VolumeEntry, err error) error {
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, status, v1.FromVolumeEntry(e))
}

func (a volumeAPI) stat(w http.ResponseWriter, r *http.Request, q url.Values) error {
	e, err := a.files(r).Stat(r.Context(), q.Get("path"))
	return writeVolumeEntry(w, http.StatusOK, e, err)
}

func (a volumeAPI) download(w http.ResponseWriter, r *http.Request, q url.Values) error {
	e, body, err := a.files(r).Read(r.Context(), q.Get("path"))
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", v1.Octets)
	w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
	w.WriteHeader(http.StatusOK)
	return httpapi.SendFile(w, r, body, e.Size)
}

func (a volumeAPI) upload(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := httpapi.CheckMediaType(r, v1.Octets); err != nil {
		return err
	}
	as, err := toVolumeWrite(q)
	if err != nil {
		return err
	}
	httpapi.AllowLongBody(r)
	e, err := a.files(r).Write(r.Context(), q.Get("path"), as, archive{r.Body})
	return writeVolumeEntry(w, http.StatusOK, e, err)
}

// toVolumeWrite reads the attributes of an uploaded file.
func toVolumeWrite(q url.Values) (o brig.VolumeWrite, err error) {
	if o.Force, err = boolean(q, "force"); err != nil {
		return o, err
	}
	for field, to := range map[string]**uint32{"uid": &o.UID, "gid": &o.GID} {
		if q.Has(field) {
			if *to, err = v1.ParseVolumeID(field, q.Get(field)); err != nil {
				return o, err
			}
		}
	}
	if q.Has("mode") {
		n, err := strconv.ParseUint(q.Get("mode"), 8, 32)
		if err != nil || n > 0o7777 {
			return o, brig.InvalidField("mode", "must be permission bits in octal digits").WithHint("for example 0644")
		}
		mode := uint32(n)
		o.Mode = &mode
	}
	return o, nil
}

func (a volumeAPI) makeDir(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.VolumeDirRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	attributes, err := in.Domain()
	if err != nil {
		return err
	}
	if err := requirePath("path", in.Path); err != nil {
		return err
	}
	e, err := a.files(r).MakeDir(r.Context(), in.Path, brig.VolumeWrite{VolumeAttributes: attributes, Force: in.Force})
	return writeVolumeEntry(w, http.StatusCreated, e, err)
}

func (a volumeAPI) setAttributes(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.VolumeAttributesRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	attributes, err := in.Domain()
	if err != nil {
		return err
	}
	if err := requirePath("path", in.Path); err != nil {
		return err
	}
	e, err := a.files(r).SetAttributes(r.Context(), in.Path, attributes)
	return writeVolumeEntry(w, http.StatusOK, e, err)
}

func (a volumeAPI) removeFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := a.files(r).Remove(r.Context(), q.Get("path")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
