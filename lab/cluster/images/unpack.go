// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/viplab/viplab/lab/cluster/kubelet"
)

// Unpack unpacks the image at a path into an empty folder, and returns it with that folder as its root. The path is the
// folder of an OCI layout or a tarball as "docker save" writes it, with one image for this architecture.
func Unpack(path, folder string) (kubelet.Image, error) {
	image, err := open(path)
	if err != nil {
		return kubelet.Image{}, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return kubelet.Image{}, err
	}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }() // what could not be read has been reported
	if err := unpack(files, folder); err != nil {
		return kubelet.Image{}, err
	}
	c := config.Config
	out := kubelet.Image{Root: folder, Command: c.Entrypoint, Args: c.Cmd, Env: c.Env, Dir: c.WorkingDir}
	out.User, out.Group, err = user(folder, c.User)
	return out, err
}

// open opens the image at a path.
func open(path string) (v1.Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		image, err := tarball.ImageFromPath(path, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w (want a tarball of \"docker save\" with one image; unpack an OCI archive with "+
				"tar, and give the folder)", path, err)
		}
		return image, nil
	}
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (the folder of an OCI layout has a file index.json)", path, err)
	}
	return choose(index)
}

// choose returns the image of an index for this architecture, or its only one.
func choose(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []v1.Descriptor
	for _, d := range manifest.Manifests {
		p := d.Platform
		if p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("wants one image for linux/%s, has %d among %d", runtime.GOARCH, len(found),
			len(manifest.Manifests))
	}
	if found[0].MediaType.IsIndex() {
		inner, err := index.ImageIndex(found[0].Digest)
		if err != nil {
			return nil, err
		}
		return choose(inner)
	}
	return index.Image(found[0].Digest)
}

// unpack writes the files of a tar archive below a folder, which no path or link in the archive leaves.
func unpack(archive io.Reader, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackOne(root, h, files); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, data io.Reader) error {
	name := filepath.Clean("/" + h.Name)[1:]
	if name == "" {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	case tar.TypeReg:
		if err := write(root, name, data); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		_ = root.Lchown(name, h.Uid, h.Gid)
		return nil
	case tar.TypeLink:
		return root.Link(filepath.Clean("/" + h.Linkname)[1:], name)
	default:
		return nil // a device or pipe, which a container has of its own or makes
	}
	_ = root.Lchown(name, h.Uid, h.Gid) // without root all files belong to the user of the lab
	return root.Chmod(name, mode&(os.ModePerm|os.ModeSetuid|os.ModeSetgid|os.ModeSticky))
}

func write(root *os.Root, name string, data io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	return errors.Join(err, f.Close())
}

// user returns the ids of the user of an image: "", "ID", "ID:GROUP" or a name of its /etc/passwd.
func user(root, name string) (id, group uint32, err error) {
	name, groupName, _ := strings.Cut(name, ":")
	if name == "" {
		return 0, 0, nil
	}
	if number, err := strconv.ParseUint(name, 10, 32); err == nil {
		g, _ := strconv.ParseUint(groupName, 10, 32) // the name of a group counts as none
		return uint32(number), uint32(g), nil
	}
	text, err := os.ReadFile(filepath.Join(root, "etc", "passwd"))
	if err != nil {
		return 0, 0, fmt.Errorf("user %s: %w", name, err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(line, ":"); len(f) > 3 && f[0] == name {
			u, err1 := strconv.ParseUint(f[2], 10, 32)
			g, err2 := strconv.ParseUint(f[3], 10, 32)
			return uint32(u), uint32(g), errors.Join(err1, err2)
		}
	}
	return 0, 0, fmt.Errorf("user %s: not in its /etc/passwd", name)
}
