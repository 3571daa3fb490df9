// SPDX-License-Identifier: Apache-2.0

// Command dist makes the files of a release: for each architecture a static stripped executable in an archive and in a
// Debian package, with manual pages, completions, licences and a bill of materials (SBOM), and checksums of all. It is
// what "make dist" calls, in the root folder of the module. "make image" makes a container image instead.
//
// The files depend on the commit and on the version of Go only: two builds of a commit are equal, byte by byte.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "bin/dist", "the `folder` of the files; what it holds is removed")
	archs := flag.String("arch", "amd64,arm64", "architectures, by their names in Go")
	image := flag.Bool("image", false, "make a container image, the folder of an OCI layout, and judge a scenario in it")
	flag.Parse()
	if err := run(ctx, *out, strings.Split(*archs, ","), *image); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, archs []string, image bool) error {
	if !slices.Contains(archs, runtime.GOARCH) {
		return fmt.Errorf("-arch %s: %s must be among them: manual pages and completions come from an executable "+
			"that runs here", strings.Join(archs, ","), runtime.GOARCH)
	}
	scratch, err := os.MkdirTemp("", "viplab-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	binary := func(arch string) string { return filepath.Join(scratch, "viplab-"+arch) }
	for _, arch := range archs {
		fmt.Println("building for", arch)
		if err := compile(ctx, arch, binary(arch)); err != nil {
			return err
		}
	}
	native := binary(runtime.GOARCH)
	r, err := identify(ctx, native)
	if err != nil {
		return err
	}
	pages, err := documents(ctx, native, r.Time)
	if err != nil {
		return err
	}
	if image {
		if err := r.images(ctx, out, archs, binary, pages); err != nil {
			return err
		}
		return checkImage(ctx, out)
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	for _, arch := range archs {
		if err := r.pack(ctx, out, arch, binary(arch), pages); err != nil {
			return err
		}
	}
	return sums(out)
}

// compile builds the executable for an architecture. It names no folder of this machine.
func compile(ctx context.Context, arch, goal string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", goal,
		"./cmd/viplab")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build for %s: %w", arch, err)
	}
	return nil
}

// release is what the names and the dates of the files follow from. It is what "viplab version -o json" prints.
type release struct {
	Version string    // "v0.3.0", or the pseudo-version of a commit
	Time    time.Time // that of the commit
}

// identify asks an executable for its version.
func identify(ctx context.Context, binary string) (release, error) {
	var r release
	out, err := exec.CommandContext(ctx, binary, "version", "--output", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		return r, fmt.Errorf("%s version: %w", binary, err)
	}
	if r.Time.IsZero() {
		return r, fmt.Errorf("the executable states no commit: the go command records it in a clone of the repository, " +
			"but not in a copy without .git, nor in a worktree of \"git worktree\"")
	}
	return r, nil
}

// name returns the version as names of files have it: "0.3.0".
func (r release) name() string { return strings.TrimPrefix(r.Version, "v") }

// pack writes the archive, the Debian package and the bill of materials of one architecture.
func (r release) pack(ctx context.Context, out, arch, binary string, pages tree) error {
	base := filepath.Join(out, fmt.Sprintf("viplab_%s_linux_%s", r.name(), arch))
	materials, err := billOfMaterials(ctx, binary, r.name())
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".cdx.json", materials, 0o644); err != nil {
		return err
	}
	licences, err := licences(ctx, binary)
	if err != nil {
		return err
	}
	all := pages.with(
		file{"bin/viplab", 0o755, nil, binary},
		file{"share/doc/viplab/viplab.cdx.json", 0o644, materials, ""},
		file{"share/doc/viplab/copyright", 0o644, licences, ""},
	)
	if err := all.archive(base+".tar.gz", "viplab-"+r.name(), r.Time); err != nil {
		return err
	}
	return all.debian(ctx, filepath.Join(out, fmt.Sprintf("viplab_%s_%s.deb", debianVersion(r.name()), arch)), control{
		Version: debianVersion(r.name()), Architecture: arch, Time: r.Time,
	})
}

// sums writes SHA256SUMS, which "sha256sum --check" reads, and lists the files.
func sums(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), e.Name())
		fmt.Printf("%6.1f MB  %s\n", float64(len(content))/1e6, filepath.Join(out, e.Name()))
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(text.String()), 0o644)
}
