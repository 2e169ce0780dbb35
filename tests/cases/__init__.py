"""Problems, data, float64 references and a runner for kernels on any device."""
