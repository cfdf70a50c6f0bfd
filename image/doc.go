// Package image stores the images from which sandboxes start. The host image is
// the host's own user land without its secrets. Other images are root file
// systems that were imported as tar archives or built from Debian packages, and
// layered images from registries, OCI layouts and docker archives.
//
// # Layout on disk
//
// The store uses one directory. Only its owner may enter it, since an image may
// contain world-writable directories:
//
//	images/index.json          maps names and manifests to digests
//	images/lock                held while the index changes
//	images/sha256-<hex>/       one image: meta.json, and its files in root/
//	images/tmp/<id>/, <id>.lock  work in progress; a live process holds the lock
//
// The store adds and removes an image with one rename each, so that a crash
// leaves only a directory in tmp, which the next Open removes. The store keeps
// no state in memory: several processes may share the directory.
//
// # Trust in archives
//
// The store trusts no content of an archive. Every file operation goes through os.Root. The kernel
// follows no symbolic link of the archive, and the store refuses an entry that would need one. In
// the layers of an image, the store resolves such a link itself, one directory at a time, and
// interprets its target below the root. Whiteouts never follow links. The store skips and counts
// devices, FIFOs and sockets. It drops set-user-ID and set-group-ID bits, extended attributes and
// file capabilities. It refuses whiteouts outside of layers, because they show that the archive is
// one layer of an image and not a root file system.
//
// The store does not trust registries either: their content must have the
// requested digests, and requests go only to allowed addresses (registry.go).
package image
