// Package builder builds the templates of tenants. It runs the steps of a build in a sandbox of the
// tenant, with the tenant's quota, and keeps the result as a paused sandbox, of which the sandboxes
// of the template are copies.
//
// A build has these phases. A failure names the phase, or the step, in which it occurred:
//
//	base      create a sandbox from an image, or copy the files of another template
//	1 to n    run the steps, in order
//	finalize  run the start command, and wait until the ready command succeeds
//
// The sandbox of a build gives root the rights that steps such as apt-get install need (see
// brig.Spec.BuildRights). Its files are saved without its memory. The start command runs in a copy
// that has booted without these rights, and only that copy is saved with its memory.
package builder
