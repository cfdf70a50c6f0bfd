package v1

import (
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// VolumeMount is the mount of a volume in a sandbox.
type VolumeMount struct {
	Name     string `json:"name" doc:"the volume's name or ID" minLength:"1" maxLength:"128"`
	Path     string `json:"path" doc:"absolute path in the sandbox; it is created if the image lacks it" maxLength:"1024" pattern:"^/[^\\x00\\n]+$" example:"/data"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"the sandbox cannot change the volume"`
	ID       string `json:"id,omitempty" doc:"in responses: ID of the volume"`
}

// VolumeRequest is the request to create a volume.
type VolumeRequest struct {
	Name string `json:"name" doc:"1 to 128 of letters, digits, _ and -, unique among the tenant's volumes" pattern:"^[a-zA-Z0-9_-]{1,128}$" example:"data"`
	Size Size   `json:"size,omitempty" doc:"size of the file system in bytes; default: the server's" minimum:"0"`
}

// Volume is a directory that several sandboxes can mount at the same time.
type Volume struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Size    int64     `json:"size" doc:"size of the file system in bytes; it needs a small part for itself"`
	Used    int64     `json:"used" doc:"bytes of the server's disk that it takes"`
	Created time.Time `json:"created"`
}

// Volumes is the list of a tenant's volumes.
type Volumes struct {
	Volumes []Volume `json:"volumes" nullable:"false"`
}

// VolumeEntry describes a file, directory or link in a volume.
type VolumeEntry struct {
	Name     string    `json:"name" doc:"the path's last part"`
	Path     string    `json:"path" doc:"path in the volume, with a slash at the beginning"`
	Type     string    `json:"type" doc:"file, directory, symlink, or other"`
	Size     int64     `json:"size" doc:"in bytes"`
	Mode     uint32    `json:"mode" doc:"permission bits"`
	UID      uint32    `json:"uid" doc:"ID of the user that owns it"`
	GID      uint32    `json:"gid" doc:"ID of the group that owns it"`
	Accessed time.Time `json:"accessed"`
	Modified time.Time `json:"modified"`
	Changed  time.Time `json:"changed" doc:"time of the last change of the content, the owner or the mode"`
	Target   string    `json:"target,omitempty" doc:"target of a symbolic link, as it was written"`
}

// VolumeEntries is the content of a directory of a volume, sorted by path.
type VolumeEntries struct {
	Entries []VolumeEntry `json:"entries" nullable:"false"`
}

// VolumeAttributes are the owner and the mode of a path.
type VolumeAttributes struct {
	UID  *uint32 `json:"uid,omitempty" doc:"ID of the user that owns it"`
	GID  *uint32 `json:"gid,omitempty" doc:"ID of the group that owns it"`
	Mode *uint32 `json:"mode,omitempty" doc:"permission bits as a number: 420 is 0644" maximum:"4095"`
}

// VolumeDirRequest is the request to create a directory in a volume.
type VolumeDirRequest struct {
	Path string `json:"path" doc:"path in the volume" minLength:"1" maxLength:"4095" pattern:"^[^\\x00]*$" example:"/data"`
	VolumeAttributes
	Force bool `json:"force,omitempty" doc:"create missing parents, and accept an existing directory"`
}

// VolumeAttributesRequest is the request to change the owner and the mode of a path. Missing fields
// stay unchanged.
type VolumeAttributesRequest struct {
	Path string `json:"path" doc:"path in the volume" minLength:"1" maxLength:"4095" pattern:"^[^\\x00]*$" example:"/data"`
	VolumeAttributes
}

// FromVolumeMounts converts a list to its wire type. An empty list differs from a missing one.
func FromVolumeMounts(list []brig.VolumeMount) []VolumeMount {
	if list == nil {
		return nil
	}
	out := []VolumeMount{}
	for _, m := range list {
		out = append(out, VolumeMount(m))
	}
	return out
}

// ToVolumeMounts is the inverse of FromVolumeMounts.
func ToVolumeMounts(list []VolumeMount) []brig.VolumeMount {
	if list == nil {
		return nil
	}
	out := []brig.VolumeMount{}
	for _, m := range list {
		out = append(out, brig.VolumeMount(m))
	}
	return out
}

// FromVolume converts v to its wire type.
func FromVolume(v *brig.Volume) Volume {
	return Volume{ID: v.ID, Name: v.Name, Size: v.Size, Used: v.Used, Created: v.Created}
}

// Domain converts v to its domain type.
func (v Volume) Domain() *brig.Volume {
	return &brig.Volume{ID: v.ID, Name: v.Name, Size: v.Size, Used: v.Used, Created: v.Created}
}

// FromVolumes converts a list to its wire type.
func FromVolumes(list []*brig.Volume) Volumes {
	out := Volumes{Volumes: []Volume{}}
	for _, v := range list {
		out.Volumes = append(out.Volumes, FromVolume(v))
	}
	return out
}

// FromVolumeEntry converts e to its wire type.
func FromVolumeEntry(e *brig.VolumeEntry) VolumeEntry {
	return VolumeEntry{
		Name: e.Name, Path: e.Path, Type: string(e.Type), Size: e.Size, Mode: e.Mode, UID: e.UID, GID: e.GID,
		Accessed: e.Accessed, Modified: e.Modified, Changed: e.Changed, Target: e.Target,
	}
}

// Domain converts e to its domain type.
func (e VolumeEntry) Domain() *brig.VolumeEntry {
	return &brig.VolumeEntry{
		Name: e.Name, Path: e.Path, Type: brig.EntryType(e.Type), Size: e.Size, Mode: e.Mode, UID: e.UID, GID: e.GID,
		Accessed: e.Accessed, Modified: e.Modified, Changed: e.Changed, Target: e.Target,
	}
}

// FromVolumeEntries converts a list to its wire type.
func FromVolumeEntries(list []*brig.VolumeEntry) VolumeEntries {
	out := VolumeEntries{Entries: []VolumeEntry{}}
	for _, e := range list {
		out.Entries = append(out.Entries, FromVolumeEntry(e))
	}
	return out
}

// FromVolumeAttributes converts a to its wire type.
func FromVolumeAttributes(a brig.VolumeAttributes) VolumeAttributes {
	return VolumeAttributes{UID: a.UID, GID: a.GID, Mode: a.Mode}
}

// Domain converts a to its domain type.
func (a VolumeAttributes) Domain() (brig.VolumeAttributes, error) {
	if a.Mode != nil && *a.Mode > 0o7777 {
		return brig.VolumeAttributes{}, brig.InvalidField("mode", "%d are no permission bits", *a.Mode).WithHint("for example 420, which is 0644")
	}
	for field, id := range map[string]*uint32{"uid": a.UID, "gid": a.GID} {
		if id != nil && *id == keepID {
			return brig.VolumeAttributes{}, brig.InvalidField(field, "%d is no ID", *id).WithHint("give a number, for example 1000")
		}
	}
	return brig.VolumeAttributes{UID: a.UID, GID: a.GID, Mode: a.Mode}, nil
}

// keepID is the ID by which the kernel leaves an owner unchanged.
const keepID = 1<<32 - 1

// ParseVolumeID parses the number of a user or of a group.
func ParseVolumeID(field, text string) (*uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == keepID {
		return nil, brig.InvalidField(field, "%q is no ID", brig.Clip(text, 40)).WithHint("give a number, for example 1000")
	}
	id := uint32(n)
	return &id, nil
}
