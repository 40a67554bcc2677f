"""What a person looks at: tables, figures, sinks."""
