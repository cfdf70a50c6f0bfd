// Package image keeps the images from which sandboxes start: the host image,
// which is this machine's own user land without its secrets, root file systems
// that were imported as tar archives or built of Debian packages, and images of
// layers from registries, OCI layouts and docker's archives.
//
// # What is on disk
//
// Everything is below one folder that only its owner may enter, since an image
// may hold directories that are writable by everybody:
//
//	images/index.json          which name, and which manifest, means which digest
//	images/lock                held while the index changes
//	images/sha256-<hex>/       one image: meta.json, and its files in root/
//	images/tmp/<id>/, <id>.lock  work in progress; the lock says by a live process
//
// An image appears by one rename and disappears by one rename, so that a crash
// leaves nothing but a folder in tmp, which the next Open clears. Nothing is
// kept in memory: several processes may share the folder.
//
// # What is believed of an archive
//
// Nothing. Every file operation goes through os.Root, the system follows no
// symbolic link of the archive, and an entry that would need one is refused. In
// layers of an image it is taken to lead below the root and is followed by us,
// one directory at a time; by whiteouts never.
// Devices, fifos and sockets are left out and counted; set-user-ID and
// set-group-ID bits, extended attributes and file capabilities are dropped;
// whiteouts outside of layers are refused, because they say that the archive is
// one layer of an image and not a root file system.
//
// A registry is believed no more: what it sends has to have the digests that it
// was asked for, and requests go only where they may (registry.go).
package image
