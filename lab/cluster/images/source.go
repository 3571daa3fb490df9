// SPDX-License-Identifier: Apache-2.0

// Package images makes the images that a lab.yaml describes: commands and folders of this machine, and OCI images that
// lie on it. It pulls nothing.
package images

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/kubelet"
)

// Source says what a name of an image stands for. The other fields change what OCI gives.
type Source struct {
	// Server is a server inside viplab: echo or pause.
	Server string `yaml:"server" json:"server,omitempty"`
	// Command is the program with its first arguments: a path, or a name that PATH leads to.
	Command []string `yaml:"command" json:"command,omitempty"`
	// Args are the arguments that a container's args replace.
	Args []string `yaml:"args" json:"args,omitempty"`
	// Env are variables, as NAME=value.
	Env []string `yaml:"env" json:"env,omitempty"`
	// Dir is the working directory; "" means "/".
	Dir string `yaml:"dir" json:"dir,omitempty"`
	// Root is a folder of this machine with all files of the image. Without Root and OCI a container sees the files of
	// this machine.
	Root string `yaml:"root" json:"root,omitempty"`
	// OCI is the folder of an OCI layout, or a tarball of "docker save".
	OCI string `yaml:"oci" json:"oci,omitempty"`
}

// At returns the source with absolute paths; relative ones are below a folder.
func (s Source) At(folder string) Source {
	absolute := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
	s.Root, s.OCI = absolute(s.Root), absolute(s.OCI)
	if s.onMachine() && len(s.Command) > 0 && strings.Contains(s.Command[0], "/") {
		s.Command = slices.Clone(s.Command)
		s.Command[0] = absolute(s.Command[0])
	}
	return s
}

// onMachine reports whether the image has the files of this machine.
func (s Source) onMachine() bool { return s.Root == "" && s.OCI == "" }

// Make returns the images of sources, by their names. It unpacks OCI images below a folder. The error has all mistakes.
func Make(sources map[string]Source, folder string) (kubelet.Images, error) {
	out := kubelet.Images{}
	var errs []error
	for i, name := range slices.Sorted(maps.Keys(sources)) {
		image, err := sources[name].make(filepath.Join(folder, fmt.Sprint(i)))
		if err != nil {
			errs = append(errs, fmt.Errorf("image %q: %w", name, err))
		}
		out[name] = image
	}
	return out, errors.Join(errs...)
}

func (s Source) make(folder string) (image kubelet.Image, err error) {
	if err := s.Check(); err != nil {
		return image, err
	}
	if s.OCI != "" {
		if image, err = Unpack(s.OCI, folder); err != nil {
			return image, err
		}
	}
	image.Server, image.Root = kubelet.Server(s.Server), cmp.Or(s.Root, image.Root)
	if len(s.Command) > 0 {
		image.Command, image.Args = s.Command, nil
	}
	if len(s.Args) > 0 {
		image.Args = s.Args
	}
	image.Env = append(image.Env, s.Env...)
	image.Dir = cmp.Or(s.Dir, image.Dir)
	if s.onMachine() && len(s.Command) > 0 && filepath.IsAbs(s.Command[0]) {
		// /tmp and /run of the machine are not in a container, but this file is.
		image.Mounts = []container.Mount{{Source: s.Command[0], Target: s.Command[0], ReadOnly: true}}
	}
	return image, nil
}

// Check looks for contradictions and missing files.
func (s Source) Check() error {
	switch {
	case s.Root != "" && s.OCI != "":
		return errors.New("it has both root and oci: want one of them")
	case s.Server != "" && !slices.Contains([]string{string(kubelet.EchoServer), string(kubelet.Pause)}, s.Server):
		return fmt.Errorf("server: %q: want echo or pause", s.Server)
	case s.Server != "" && (len(s.Command) > 0 || s.Root != "" || s.OCI != ""):
		return errors.New("it has a server and a program: want one of them")
	case s.Server == "" && s.OCI == "" && s.Root == "" && len(s.Command) == 0:
		return errors.New("it stands for nothing: want command, root, oci or server")
	}
	if s.Root != "" {
		if info, err := os.Stat(s.Root); err != nil || !info.IsDir() {
			return fmt.Errorf("root: %s: want a folder (%v)", s.Root, err)
		}
	}
	if s.onMachine() && len(s.Command) > 0 && filepath.IsAbs(s.Command[0]) {
		if _, err := os.Stat(s.Command[0]); err != nil {
			return fmt.Errorf("command: %w", err)
		}
	}
	return nil
}
