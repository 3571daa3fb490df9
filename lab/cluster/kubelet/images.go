// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab/cluster/container"
)

// Image is what a container runs if its image has a name that Images knows.
type Image struct {
	// Server is a server inside viplab, which the container runs unless it has a command of its own.
	Server Server
	// Command is the program with its first arguments. A container's command replaces it.
	Command []string
	// Args follow Command. A container's args, and a command without args, replace them.
	Args []string
	// Env are variables as "NAME=value", before those of the container.
	Env []string
	// Dir is the working directory; "" means "/".
	Dir string
	// User and Group are the numeric ids of the program's user.
	User, Group uint32
	// Root is the folder with the image's files; "" means the files of this machine.
	Root string
	// Programs are programs of the image that are there only if a container's command begins with their path: what is
	// mounted and provided for it in the place of Mounts and Provide.
	Programs map[string]Image
	// Mounts put files of this machine into the container, read-only.
	Mounts []container.Mount
	// Provide makes what is missing of the image before a container runs. It returns at once if all is there. Otherwise it
	// says what it does through progress, for the status of the container. Several containers may call it at a time. nil
	// means that all is there.
	Provide func(ctx context.Context, progress func(string)) error
}

// Server is the kind of a server inside viplab.
type Server string

// The servers.
const (
	NoServer   Server = ""      // the image has a program
	EchoServer Server = "echo"  // answers on every container port with its name and the client's address
	DNSServer  Server = "dns"   // the cluster's DNS, on port 53
	Pause      Server = "pause" // does nothing until it ends
)

// Images finds images by name. A name is what a manifest says, with or without registry and tag: "nginx" stands for
// "docker.io/library/nginx:1.14.2" too. A longer name goes first: "example.org/nginx" before "nginx".
type Images map[string]Image

// Builtin returns the images that every lab has. Like those of registries, images of shells and languages have a
// default command that args replace, and images of one tool, such as curl, have that tool as their entry point.
func Builtin() Images {
	all := Images{
		"dns":   {Server: DNSServer},
		"pause": {Server: Pause},
		"curl":  {Command: []string{"curl"}},
	}
	for _, name := range []string{"echo", "echoserver", "http-echo", "nginx", "httpd", "hello-app", "whoami"} {
		all[name] = Image{Server: EchoServer}
	}
	for _, name := range []string{"busybox", "alpine", "debian", "ubuntu", "bash", "netshoot", "glibc-dns-testing",
		"jessie-dnsutils", "distroless-iptables"} {
		all[name] = Image{Args: []string{"sh"}}
	}
	for name, program := range map[string]string{"python": "python3", "perl": "perl"} {
		all[name] = Image{Args: []string{program}}
	}
	all["iperf3"] = Image{Command: []string{"iperf3"}}
	return all
}

// With returns the images with others, which replace those of the same name.
func (i Images) With(others Images) Images {
	all := maps.Clone(i)
	maps.Copy(all, others)
	return all
}

// UnknownImageError reports that a lab has no image of a name.
type UnknownImageError struct {
	Name  string
	Known []string
}

func (e *UnknownImageError) Error() string {
	return fmt.Sprintf("image %q is not known. A lab pulls no images from registries: under images in lab.yaml, give the "+
		"name a command of this machine, a root folder, an OCI layout or a tarball, or use one of %s",
		e.Name, strings.Join(e.Known, ", "))
}

// running returns the image with what a container that runs a command needs of it.
func (i Image) running(command []string) Image {
	if len(command) == 0 {
		return i
	}
	if p, ok := i.Programs[command[0]]; ok {
		i.Mounts, i.Provide = p.Mounts, p.Provide
	}
	return i
}

// Find returns the image of a name in a manifest, or an UnknownImageError.
func (i Images) Find(name string) (Image, error) {
	for _, n := range names(name) {
		if image, ok := i[n]; ok {
			return image, nil
		}
	}
	return Image{}, &UnknownImageError{Name: name, Known: slices.Sorted(maps.Keys(i))}
}

// names returns the names that an image can be known by, the longest first: "a/b/c:tag", "a/b/c", "b/c", "c".
func names(name string) []string {
	out := []string{name}
	base, _, _ := strings.Cut(name, "@")
	if i := strings.LastIndex(base, ":"); i > strings.LastIndex(base, "/") {
		base = base[:i]
	}
	for {
		out = append(out, base)
		_, rest, more := strings.Cut(base, "/")
		if !more {
			return out
		}
		base = rest
	}
}
