// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// configError reports that a container refers to an object or key that does not exist.
type configError struct{ detail string }

func (e *configError) Error() string { return e.detail }

// environment collects variables, later ones in the place of earlier ones.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) list() []string {
	var out []string
	for _, n := range e.names {
		out = append(out, n+"="+e.values[n])
	}
	return out
}

// path is the PATH of programs on the machine's files.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the variables of a container, as a kubelet sets them.
func (p *Pod) environment(c *corev1.Container, image Image) (*environment, error) {
	e := &environment{values: map[string]string{}}
	e.set("PATH", path)
	e.set("HOSTNAME", hostname(p.object))
	e.set("HOME", "/root")
	for _, v := range image.Env {
		name, value, _ := strings.Cut(v, "=")
		e.set(name, value)
	}
	p.serviceVariables(e)
	for _, from := range c.EnvFrom {
		if err := p.setAll(e, from); err != nil {
			return nil, err
		}
	}
	for _, v := range c.Env {
		value := expand(v.Value, e.values)
		if v.ValueFrom != nil {
			var found bool
			var err error
			if value, found, err = p.valueFrom(v.ValueFrom, c); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			if !found {
				continue
			}
		}
		e.set(v.Name, value)
	}
	return e, nil
}

// setAll sets the variables of a ConfigMap or Secret.
func (p *Pod) setAll(e *environment, from corev1.EnvFromSource) error {
	var data map[string][]byte
	var err error
	switch {
	case from.ConfigMapRef != nil:
		data, err = p.data(kindConfigMap, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		data, err = p.data(kindSecret, from.SecretRef.Name, from.SecretRef.Optional)
	}
	for name, value := range data {
		e.set(from.Prefix+name, string(value))
	}
	return err
}

// valueFrom returns the value of a reference, and whether there is one: an optional one may be missing.
func (p *Pod) valueFrom(from *corev1.EnvVarSource, c *corev1.Container) (value string, found bool, err error) {
	key := func(kind store.Kind, name, key string, optional *bool) (string, bool, error) {
		data, err := p.data(kind, name, optional)
		if err != nil {
			return "", false, err
		}
		v, ok := data[key]
		if !ok && !ptr.Deref(optional, false) {
			return "", false, &configError{fmt.Sprintf("couldn't find key %s in %s %s/%s", key, kind, p.key.Namespace, name)}
		}
		return string(v), ok, nil
	}
	switch {
	case from.FieldRef != nil:
		value, err = p.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		return resource(from.ResourceFieldRef, c), true, nil
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		return key(kindConfigMap, r.Name, r.Key, r.Optional)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		return key(kindSecret, r.Name, r.Key, r.Optional)
	}
	return "", false, &configError{"valueFrom names nothing that a lab knows"}
}

// field returns the value of a field of the pod, as the downward API names it.
func (p *Pod) field(path string) (string, error) {
	o, hosts := p.object, p.HostAddrs
	if name, ok := between(path, "metadata.labels['", "']"); ok {
		return o.Labels[name], nil
	}
	if name, ok := between(path, "metadata.annotations['", "']"); ok {
		return o.Annotations[name], nil
	}
	switch path {
	case "metadata.name":
		return o.Name, nil
	case "metadata.namespace":
		return o.Namespace, nil
	case "metadata.uid":
		return string(o.UID), nil
	case "metadata.labels":
		return quoted(o.Labels), nil
	case "metadata.annotations":
		return quoted(o.Annotations), nil
	case "spec.nodeName":
		return o.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return o.Spec.ServiceAccountName, nil
	case "status.podIP":
		return p.Addrs[0].String(), nil
	case "status.podIPs":
		return joined(p.Addrs), nil
	case "status.hostIP":
		return hosts[0].String(), nil
	case "status.hostIPs":
		return joined(hosts), nil
	}
	return "", &configError{fmt.Sprintf("field %q is not one that containers can see", path)}
}

func between(s, before, after string) (string, bool) {
	s, ok := strings.CutPrefix(s, before)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(s, after)
}

func joined[T fmt.Stringer](list []T) string {
	var out []string
	for _, x := range list {
		out = append(out, x.String())
	}
	return strings.Join(out, ",")
}

// quoted returns labels as files of the downward API show them.
func quoted(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, fmt.Sprintf("%s=%q", k, v))
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// resource returns a limit or request of a container; without one, what a node of a lab has: nothing limits it.
func resource(r *corev1.ResourceFieldSelector, c *corev1.Container) string {
	kind, name, _ := strings.Cut(r.Resource, ".")
	list := c.Resources.Limits
	if kind == "requests" {
		list = c.Resources.Requests
	}
	quantity, ok := list[corev1.ResourceName(name)]
	if !ok {
		return "0"
	}
	divisor := r.Divisor.Value()
	if divisor == 0 {
		divisor = 1
	}
	return strconv.FormatInt((quantity.Value()+divisor-1)/divisor, 10)
}

// serviceVariables sets the variables of the Services in the pod's namespace, and those of the API server.
func (p *Pod) serviceVariables(e *environment) {
	services := p.kubelet.config.Store.Snapshot().Services
	for _, s := range services {
		isAPI := s.Namespace == "default" && s.Name == "kubernetes"
		linked := s.Namespace == p.key.Namespace && ptr.Deref(p.object.Spec.EnableServiceLinks, true)
		if !isAPI && !linked || s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == "" || len(s.Spec.Ports) == 0 {
			continue
		}
		name := variable(s.Name)
		ip := s.Spec.ClusterIP
		e.set(name+"_SERVICE_HOST", ip)
		e.set(name+"_SERVICE_PORT", fmt.Sprint(s.Spec.Ports[0].Port))
		for i, port := range s.Spec.Ports {
			number, proto := fmt.Sprint(port.Port), strings.ToLower(string(port.Protocol))
			if port.Name != "" {
				e.set(name+"_SERVICE_PORT_"+variable(port.Name), number)
			}
			url := proto + "://" + net.JoinHostPort(ip, number)
			if i == 0 {
				e.set(name+"_PORT", url)
			}
			prefix := fmt.Sprintf("%s_PORT_%s_%s", name, number, strings.ToUpper(proto))
			e.set(prefix, url)
			e.set(prefix+"_PROTO", proto)
			e.set(prefix+"_PORT", number)
			e.set(prefix+"_ADDR", ip)
		}
	}
}

func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// expand replaces $(NAME) by the value of a variable. $$ stands for one $, and an unknown name stays as it is.
func expand(text string, values map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		end := strings.IndexByte(text[i:], ')')
		switch {
		case text[i+1] == '$':
			b.WriteByte('$')
			text = text[i+2:]
		case text[i+1] == '(' && end > 0:
			reference := text[i : i+end+1]
			if value, ok := values[reference[2:len(reference)-1]]; ok {
				b.WriteString(value)
			} else {
				b.WriteString(reference)
			}
			text = text[i+end+1:]
		default:
			b.WriteByte('$')
			text = text[i+1:]
		}
	}
}

// arguments returns what a container runs: its own command and args, or those of the image.
func arguments(c *corev1.Container, image Image, values map[string]string) []string {
	command, args := c.Command, c.Args
	if len(command) == 0 {
		command = image.Command
		if len(args) == 0 {
			args = image.Args
		}
	}
	out := slices.Concat(command, args)
	for i := range out {
		out[i] = expand(out[i], values)
	}
	return out
}
