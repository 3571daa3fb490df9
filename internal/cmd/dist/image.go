// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/viplab/viplab/internal/debian"
	cache "github.com/viplab/viplab/internal/release"
)

// basePackages are those of the image's base. With what they depend on they are some 25 small packages. Busybox is the
// shell and the tools that systems of continuous integration run in an image.
var basePackages = []string{"base-files", "busybox-static", "conntrack", "ipset", "iptables", "nftables"}

// images writes the folder of an OCI layout with an image for each architecture: a layer of Debian packages, and one of
// viplab. No container engine is needed.
func (r release) images(ctx context.Context, folder string, archs []string, binary func(string) string, pages tree,
) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range archs {
		base, err := baseLayer(arch)
		if err != nil {
			return fmt.Errorf("base of the image for %s: %w", arch, err)
		}
		licences, err := licences(ctx, binary(arch))
		if err != nil {
			return err
		}
		own, err := pages.with(file{"bin/viplab", 0o755, nil, binary(arch)},
			file{"share/doc/viplab/copyright", 0o644, licences, ""}).tar("usr", r.Time)
		if err != nil {
			return err
		}
		image, err := r.image(arch, base, own)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	_, err := layout.Write(folder, index)
	return err
}

// image puts layers, which are tar files, together.
func (r release) image(arch string, layers ...[]byte) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, content := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: r.Time}, RootFS: rootOf(image), Config: v1.Config{
			// Without an entry point, "viplab ..." and "sh -c ..." both work as the command of a container.
			Cmd: []string{"viplab", "--help"},
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "viplab",
				"org.opencontainers.image.version":  r.name(),
				"org.opencontainers.image.source":   "https://github.com/viplab/viplab",
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
}

// rootOf returns the list of layers of an image that has just been made, which cannot fail.
func rootOf(image v1.Image) v1.RootFS {
	config, err := image.ConfigFile()
	if err != nil {
		return v1.RootFS{}
	}
	return config.RootFS
}

// baseLayer downloads the packages of the base for an architecture, and returns their files as a tar file.
func baseLayer(arch string) ([]byte, error) {
	dir, err := cache.CacheDir()
	if err != nil {
		return nil, err
	}
	apt, err := debian.Own(filepath.Join(dir, "apt-"+arch), arch)
	if err != nil {
		return nil, err
	}
	packages, err := os.MkdirTemp("", "viplab-packages-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(packages)
	debs, err := apt.Download(packages, basePackages...)
	if err != nil {
		return nil, err
	}
	return unpacked(debs)
}

// unpacked returns the files of packages as one tar file, without manuals and translations. No script of a package
// runs: of those of the base, only that of iptables does something, the links of which baseLinks makes.
func unpacked(debs []string) ([]byte, error) {
	var out bytes.Buffer
	l := layer{tar.NewWriter(&out), map[string]bool{}}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} { // a package may have files in /bin, which is /usr/bin
		l.link(dir, "usr/"+dir)
	}
	for _, deb := range debs {
		if err := l.add(deb); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(deb), err)
		}
	}
	if err := l.finish(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// layer is a tar file of the root folder.
type layer struct {
	out  *tar.Writer
	seen map[string]bool // paths that it has
}

func (l layer) put(h *tar.Header, content []byte) error {
	if l.seen[h.Name] {
		return nil
	}
	l.seen[h.Name] = true
	h.Size = int64(len(content))
	err := l.out.WriteHeader(h)
	if err == nil {
		_, err = l.out.Write(content)
	}
	return err
}

// link makes a symbolic link, unless the path exists. An error shows when the tar file is closed.
func (l layer) link(name, to string) {
	_ = l.put(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil)
}

// unwanted are folders whose files the image does without.
var unwanted = []string{"usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/lintian/",
	"usr/share/bug/", "usr/share/doc-base/"}

func wanted(name string) bool {
	for _, prefix := range unwanted {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return !strings.HasPrefix(name, "usr/share/doc/") || path.Base(name) == "copyright"
}

// merged returns the path below the root of a file of a package, behind the links of /bin and so on.
func merged(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "bin", "sbin", "lib", "lib64":
		return "usr/" + name
	}
	return name
}

// add adds the files of a package, and its control file where scanners of images look for it.
func (l layer) add(deb string) error {
	files, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
	if err != nil {
		return err
	}
	for r := tar.NewReader(bytes.NewReader(files)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		h.Name = merged(h.Name)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = merged(h.Linkname)
		}
		if h.Name == "" || !wanted(h.Name) {
			continue
		}
		if err := l.put(h, content); err != nil {
			return err
		}
	}
	control, err := exec.Command("dpkg-deb", "--field", deb).Output()
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(filepath.Base(deb), "_")
	return l.put(&tar.Header{Name: "var/lib/dpkg/status.d/" + name, Mode: 0o644, Typeflag: tar.TypeReg}, control)
}

// applets are the programs of busybox that the image has under their names.
var applets = strings.Fields(`awk base64 basename cat chmod chown clear cmp cp cut date dd df diff dirname du echo env
	expr false find free grep gunzip gzip head hostname id install ip kill less ln ls md5sum mkdir mktemp more mount
	mountpoint mv nc nslookup od pidof ping ps pwd readlink realpath rm rmdir sed seq sh sha256sum sleep sort stat
	stty sync tail tar tee test timeout top touch tr true tty umount uname uniq unlink unzip uptime vi watch wc wget
	which whoami xargs yes`)

func (l layer) finish() error {
	for _, name := range applets {
		if !l.seen["usr/bin/"+name] && !l.seen["usr/sbin/"+name] {
			l.link("usr/bin/"+name, "/usr/bin/busybox")
		}
	}
	for _, v := range []string{"iptables", "ip6tables"} { // as Debian's alternatives link them
		for _, suffix := range []string{"", "-save", "-restore"} {
			l.link("usr/sbin/"+v+suffix, v+"-nft"+suffix)
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
	} {
		if err := l.put(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, []byte(text)); err != nil {
			return err
		}
	}
	return l.out.Close()
}

// tar returns the tree as a tar file below a folder.
func (t tree) tar(top string, date time.Time) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range t {
		content, err := f.read()
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: path.Join(top, f.path), Mode: int64(f.mode), Size: int64(len(content)),
				ModTime: date})
		}
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			return nil, err
		}
	}
	return packed.Bytes(), w.Close()
}
