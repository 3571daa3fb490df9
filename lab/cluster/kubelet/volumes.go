// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/store"
)

// tokenLife is how long the token of a pod is valid: longer than a lab stays.
const tokenLife = 365 * 24 * time.Hour

const (
	kindConfigMap store.Kind = "ConfigMap"
	kindSecret    store.Kind = "Secret"
)

// data returns the keys of a ConfigMap or Secret of the pod's namespace. An optional one that is missing is empty.
func (p *Pod) data(kind store.Kind, name string, optional *bool) (map[string][]byte, error) {
	object, _ := p.kubelet.config.Store.Object(kind, p.key.Namespace, name)
	switch o := object.(type) {
	case *corev1.ConfigMap:
		out := map[string][]byte{}
		for k, v := range o.Data {
			out[k] = []byte(v)
		}
		for k, v := range o.BinaryData {
			out[k] = v
		}
		return out, nil
	case *corev1.Secret:
		out := map[string][]byte{}
		for k, v := range o.Data {
			out[k] = v
		}
		for k, v := range o.StringData {
			out[k] = []byte(v)
		}
		return out, nil
	}
	if ptr.Deref(optional, false) {
		return nil, nil
	}
	return nil, &configError{fmt.Sprintf("%s %q not found", strings.ToLower(string(kind)), name)}
}

// folder returns a path in the folder of the pod.
func (p *Pod) folder(elements ...string) string {
	return filepath.Join(append([]string{p.kubelet.config.Folder, string(p.uid)}, elements...)...)
}

// makeFolder makes the folder of the pod: a tmpfs, so that a full volume fills nothing else.
func (p *Pod) makeFolder() error {
	folder := p.folder()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=0755,size=%d", p.kubelet.config.Space)
	if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the folder of the pod: %w", err)
	}
	p.mounted = true
	files := map[string]string{
		"hosts":       HostsFile(p.object, p.Addrs),
		"hostname":    hostname(p.object) + "\n",
		"resolv.conf": p.kubelet.config.ResolvConf(p.object),
	}
	for name, text := range files {
		if err := os.WriteFile(p.folder(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeFolder removes the folder and what is in it.
func (p *Pod) removeFolder() error {
	if !p.mounted {
		return nil
	}
	p.mounted = false
	_ = os.RemoveAll(p.folder("volumes")) // frees the memory even if another mount namespace has a copy of the mount
	return errors.Join(unix.Unmount(p.folder(), unix.MNT_DETACH), os.RemoveAll(p.folder()))
}

// HostsFile returns /etc/hosts for a pod with these addresses, as a kubelet writes it.
func HostsFile(p *corev1.Pod, addrs []netip.Addr) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")
	b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n")
	b.WriteString("fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	names := hostname(p)
	if s := p.Spec.Subdomain; s != "" {
		names = fmt.Sprintf("%s.%s.%s.svc.cluster.local\t%s", names, s, p.Namespace, names)
	}
	for _, a := range addrs {
		fmt.Fprintf(&b, "%s\t%s\n", a, names)
	}
	for _, alias := range p.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.String()
}

// makeVolumes makes the folders of the pod's volumes.
func (p *Pod) makeVolumes() error {
	for i := range p.object.Spec.Volumes {
		v := &p.object.Spec.Volumes[i]
		folder := p.volume(v.Name)
		mode := os.FileMode(0o777)
		if err := os.MkdirAll(folder, mode); err != nil {
			return err
		}
		if err := os.Chmod(folder, mode); err != nil { // whatever the umask
			return err
		}
		if err := p.fillVolume(v, folder); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", v.Name, err)
		}
	}
	return nil
}

func (p *Pod) volume(name string) string {
	for _, v := range p.object.Spec.Volumes {
		if v.Name == name && v.HostPath != nil { // of the node, which is no folder of this machine
			return filepath.Join(p.kubelet.config.Folder, "nodes", p.object.Spec.NodeName, filepath.Clean("/"+v.HostPath.Path))
		}
	}
	return p.folder("volumes", name)
}

func (p *Pod) fillVolume(v *corev1.Volume, folder string) error {
	switch {
	case v.EmptyDir != nil, v.HostPath != nil:
		return nil
	case v.ConfigMap != nil:
		return p.writeData(folder, kindConfigMap, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		return p.writeData(folder, kindSecret, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return p.writeFields(folder, v.DownwardAPI.Items)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if err := p.writeProjection(folder, s); err != nil {
				return err
			}
		}
		return nil
	}
	if v.VolumeSource == (corev1.VolumeSource{}) { // the default
		return nil
	}
	return &configError{"a lab has emptyDir, configMap, secret, downwardAPI, projected and hostPath volumes"}
}

func (p *Pod) writeProjection(folder string, s corev1.VolumeProjection) error {
	switch {
	case s.ConfigMap != nil:
		return p.writeData(folder, kindConfigMap, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		return p.writeData(folder, kindSecret, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return p.writeFields(folder, s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		return p.writeToken(folder, s.ServiceAccountToken)
	}
	return &configError{"a projection of a lab is a configMap, a secret, the downwardAPI or a serviceAccountToken"}
}

// writeToken writes a token of the pod's ServiceAccount. It is valid as long as the pod exists, so that it need not be
// written anew.
func (p *Pod) writeToken(folder string, t *corev1.ServiceAccountTokenProjection) error {
	ask := store.TokenRequest{Namespace: p.key.Namespace, Account: p.object.Spec.ServiceAccountName, Pod: p.object,
		Life: tokenLife}
	if t.Audience != "" {
		ask.Audiences = []string{t.Audience}
	}
	token, _, err := p.kubelet.config.Store.IssueToken(ask)
	if err != nil {
		return &configError{fmt.Sprintf("failed to fetch token: %v", err)}
	}
	return writeFile(folder, t.Path, []byte(token))
}

// writeData writes the keys of a ConfigMap or Secret as files: all, or the items.
func (p *Pod) writeData(folder string, kind store.Kind, name string, items []corev1.KeyToPath, optional *bool) error {
	data, err := p.data(kind, name, optional)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		for key, value := range data {
			if err := writeFile(folder, key, value); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && !ptr.Deref(optional, false) {
			return &configError{fmt.Sprintf("references non-existent config key: %s", item.Key)}
		}
		if err := writeFile(folder, item.Path, value); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pod) writeFields(folder string, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		if item.FieldRef == nil {
			continue
		}
		value, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := writeFile(folder, item.Path, []byte(value)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file at a path below a folder, which the path cannot leave.
func writeFile(folder, path string, data []byte) error {
	path = filepath.Join(folder, filepath.Clean("/"+path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// mounts returns what a container finds in its file tree beside the image.
func (p *Pod) mounts(c *corev1.Container, image Image) ([]container.Mount, error) {
	out := append([]container.Mount(nil), image.Mounts...)
	for _, name := range []string{"hosts", "resolv.conf", "hostname"} {
		out = append(out, container.Mount{Source: p.folder(name), Target: "/etc/" + name})
	}
	for _, m := range c.VolumeMounts {
		source := p.volume(m.Name)
		if m.SubPath != "" {
			var err error
			if source, err = subPath(source, m.SubPath); err != nil {
				return nil, err
			}
		}
		fixed := m.ReadOnly
		for _, v := range p.object.Spec.Volumes {
			fixed = fixed || v.Name == m.Name && (v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil ||
				v.Projected != nil)
		}
		out = append(out, container.Mount{Source: source, Target: m.MountPath, ReadOnly: fixed})
	}
	return out, nil
}

// subPath returns a path in a volume. A container can make symbolic links there, so it must not lead out.
func subPath(volume, path string) (string, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	path = filepath.Clean("/" + path)[1:]
	if _, err := root.Stat(path); errors.Is(err, os.ErrNotExist) {
		err = root.MkdirAll(path, 0o777)
		if err != nil {
			return "", fmt.Errorf("subPath %s: %w", path, err)
		}
	} else if err != nil {
		return "", fmt.Errorf("subPath %s: %w", path, err)
	}
	return filepath.EvalSymlinks(filepath.Join(volume, path))
}
