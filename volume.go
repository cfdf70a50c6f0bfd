package brig

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Volume is a directory of a tenant that outlives sandboxes. Several sandboxes can mount it at the
// same time, and each sees at once what the others write. Locks of files hold only within one
// sandbox.
type Volume struct {
	// ID is "vol" and random characters.
	ID, Tenant string
	Name       string // unique among the tenant's volumes that are not removed
	// Size is the size of the volume's file system, in bytes. About 2 % of it are the file system's
	// own data.
	Size    int64
	Created time.Time
	// Removed is the time of the removal. A removed volume cannot be found, but it keeps its data, and
	// counts against the quota, while sandboxes that mounted it exist.
	Removed time.Time `json:",omitzero"`
	// Used is the disk space that the volume uses, in bytes. It is never stored.
	Used int64 `json:"-"`
}

// Bounds of volumes.
const (
	MinVolumeSize     = 16 * MiB
	DefaultVolumeSize = GiB
	MaxVolumeSize     = 1024 * GiB
	// MaxVolumeMounts is the number of volumes that one sandbox can mount.
	MaxVolumeMounts = 16
	// MaxVolumeName is the length of a name, in bytes.
	MaxVolumeName = 128
	// maxVolumePath is the length of the path of a mount, in bytes.
	maxVolumePath = 1024
)

// ValidVolumeName reports whether a volume can have a name. E2B's clients use the same names.
func ValidVolumeName(name string) bool {
	return name != "" && len(name) <= MaxVolumeName && strings.Trim(name, volumeNameBytes) == ""
}

const volumeNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// VolumeMount is the mount of a volume in a sandbox.
type VolumeMount struct {
	// Name is the name of the volume.
	Name string
	// Path is the absolute path of the mount in the sandbox. The directory is created if the image
	// lacks it.
	Path string
	// ReadOnly allows no writes from the sandbox.
	ReadOnly bool `json:",omitempty"`
	// ID is the ID of the volume. The engine sets it.
	ID string `json:",omitempty"`
}

// reservedMounts are the paths at, above and below which no volume can be mounted, because the
// sandbox would not work.
var reservedMounts = []string{"/proc", "/sys", "/dev", "/.brig"}

// CheckVolumeMounts returns an error for mounts that cannot be made.
func CheckVolumeMounts(mounts []VolumeMount) error {
	if len(mounts) > MaxVolumeMounts {
		return InvalidField("volumes", "%d volumes are too many", len(mounts)).WithHint("mount at most %d", MaxVolumeMounts)
	}
	for i, m := range mounts {
		field := "volumes[" + strconv.Itoa(i) + "]"
		if m.Name == "" {
			return InvalidField(field+".name", "it is required")
		}
		if !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path || m.Path == "/" || len(m.Path) > maxVolumePath || strings.ContainsAny(m.Path, "\x00\n") {
			return InvalidField(field+".path", "%q cannot be the path of a mount", Clip(m.Path, 80)).
				WithHint("give an absolute path without . and .., for example /data; at most %d bytes", maxVolumePath)
		}
		for _, reserved := range reservedMounts {
			if isAtOrBelow(m.Path, reserved) {
				return InvalidField(field+".path", "%s belongs to the sandbox itself", reserved).WithHint("mount the volume elsewhere, for example at /data")
			}
		}
		if slices.ContainsFunc(mounts[:i], func(other VolumeMount) bool { return other.Path == m.Path }) {
			return InvalidField(field+".path", "two volumes cannot be mounted at %s", Clip(m.Path, 80))
		}
	}
	return nil
}

// PathsOverlap reports whether one of two clean paths is at or below the other.
func PathsOverlap(a, b string) bool { return isAtOrBelow(a, b) || isAtOrBelow(b, a) }

// isAtOrBelow reports whether a clean path is dir or below it.
func isAtOrBelow(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// VolumeStore persists volumes.
type VolumeStore interface {
	// AddVolume inserts a volume. It returns AlreadyExists if the ID is taken, or with the field
	// "name" if a volume of the tenant that is not removed has the name.
	AddVolume(ctx context.Context, v *Volume) error
	// GetVolume returns a tenant's volume that is not removed, by ID or by name, or NotFound.
	GetVolume(ctx context.Context, tenant, ref string) (*Volume, error)
	// Volumes returns a tenant's volumes by Created, then ID, including removed ones. An empty tenant
	// means all tenants.
	Volumes(ctx context.Context, tenant string) ([]*Volume, error)
	// MarkVolumeRemoved sets Removed, or returns NotFound if no such volume exists that is not removed.
	MarkVolumeRemoved(ctx context.Context, tenant, id string, at time.Time) error
	// DeleteVolume deletes the record of a volume. It succeeds if the volume does not exist.
	DeleteVolume(ctx context.Context, tenant, id string) error
}
