// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	cache "github.com/viplab/viplab/internal/release"
)

// materialsVersion is the version of cyclonedx-gomod, which writes bills of materials.
const materialsVersion = "v1.10.0"

// billOfMaterials returns the modules that are linked into an executable, with hashes and licences, in the form of
// CycloneDX. It builds cyclonedx-gomod once, into the cache.
func billOfMaterials(ctx context.Context, binary, version string) ([]byte, error) {
	dir, err := cache.CacheDir()
	if err != nil {
		return nil, err
	}
	tool := filepath.Join(dir, "cyclonedx-gomod-"+materialsVersion, "cyclonedx-gomod")
	if _, err := os.Stat(tool); errors.Is(err, os.ErrNotExist) {
		fmt.Println("building cyclonedx-gomod", materialsVersion+", once")
		cmd := exec.CommandContext(ctx, "go", "install",
			"github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@"+materialsVersion)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+filepath.Dir(tool))
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go install cyclonedx-gomod: %w: %s", err, out)
		}
	}
	// The serial number would be random; the time is that of the build.
	cmd := exec.CommandContext(ctx, tool, "bin", "-json", "-std", "-licenses", "-noserial", "-notimestamp",
		"-version", "v"+version, binary)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cyclonedx-gomod: %w: %s", err, stderr.String())
	}
	return stdout.Bytes(), nil
}

// licences returns the licence of viplab, and the licences and notices of all modules that are linked into an
// executable: most of them ask for a copy of their text beside it.
func licences(ctx context.Context, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		return nil, err
	}
	text := bytes.NewBuffer(own)
	folders := []string{goRoot(ctx)}
	names := []string{"Go's standard library, " + info.GoVersion}
	for _, m := range info.Deps {
		out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", m.Path).Output()
		if err != nil {
			return nil, fmt.Errorf("go list -m %s: %w", m.Path, err)
		}
		folders, names = append(folders, string(bytes.TrimSpace(out))), append(names, m.Path+" "+m.Version)
	}
	for i, dir := range folders {
		found := 0
		for _, pattern := range []string{"LICEN[CS]E*", "COPYING*", "NOTICE*"} {
			files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is a good one
			for _, f := range files {
				content, err := os.ReadFile(f)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(text, "\n\n==== %s: %s\n\n%s", names[i], filepath.Base(f), content)
				found++
			}
		}
		if found == 0 {
			return nil, fmt.Errorf("%s: no licence in %s", names[i], dir)
		}
	}
	return text.Bytes(), nil
}

func goRoot(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "go", "env", "GOROOT").Output() // without it, no licence is found there
	return string(bytes.TrimSpace(out))
}
